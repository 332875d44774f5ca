//! A history with its page, shared between the thread that measures and the threads that serve.

use std::sync::{Mutex, MutexGuard, PoisonError};

use settings::Resolved;

use crate::{History, html};

/// A history and its page. The page is rendered on request and cached until the history changes, so the number of viewers
/// does not matter.
#[derive(Debug)]
pub struct Live(Mutex<(History, Option<String>)>);

impl Live {
    pub fn new(history: History) -> Self {
        Self(Mutex::new((history, None)))
    }

    /// Changes the history and discards the cached page.
    pub fn change(&self, change: impl FnOnce(&mut History)) {
        let mut state = self.state();
        change(&mut state.0);
        state.1 = None;
    }

    /// The page, rendered if the history has changed.
    pub fn html(&self, resolved: &Resolved) -> String {
        let mut state = self.state();
        let (history, drawn) = &mut *state;
        drawn.get_or_insert_with(|| html(resolved, history)).clone()
    }

    /// Locks the state. A panic while rendering has changed nothing, so a poisoned lock is harmless.
    fn state(&self) -> MutexGuard<'_, (History, Option<String>)> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Sample;
    use settings::Layers;

    #[test]
    fn the_page_changes_with_its_history() {
        let resolved = Layers::default().resolve(Some("cartpole")).unwrap();
        let live = Live::new(History::new());
        let empty = live.html(&resolved);
        assert_eq!(live.html(&resolved), empty);
        live.change(|history| history.push(Sample { frames: 4_321, ..Sample::default() }));
        assert!(!empty.contains("4,321") && live.html(&resolved).contains("4,321"));
    }
}
