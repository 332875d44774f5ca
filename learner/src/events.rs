//! Lines for the launcher that started this learner, if one did.

use std::io::Write;

use run::event::Event;

/// Where events go.
#[derive(Clone, Copy, Debug)]
pub enum Events {
    /// To standard output, one JSON object per line.
    Lines,
    /// Nowhere: nobody asked.
    Silent,
}

impl Events {
    /// Sends one. A launcher that is gone is no reason to stop: the lifeline is.
    pub fn send(self, event: &Event) {
        if let (Events::Lines, Ok(mut line)) = (self, serde_json::to_vec(event)) {
            line.push(b'\n');
            let mut out = std::io::stdout().lock();
            let _ = out.write_all(&line).and_then(|()| out.flush());
        }
    }
}
