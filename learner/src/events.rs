//! Events for the launcher, if one started this learner.

use std::io::Write;

use run::event::Event;

/// Where events are written.
#[derive(Clone, Copy, Debug)]
pub enum Events {
    /// To standard output, one JSON object per line.
    Lines,
    /// Nowhere: no launcher asked for them.
    Silent,
}

impl Events {
    /// Writes an event. A failed write does not stop the learner: with --exit-with-parent, it exits when its stdin closes.
    pub fn send(self, event: &Event) {
        if let (Events::Lines, Ok(mut line)) = (self, serde_json::to_vec(event)) {
            line.push(b'\n');
            let mut out = std::io::stdout().lock();
            let _ = out.write_all(&line).and_then(|()| out.flush());
        }
    }
}
