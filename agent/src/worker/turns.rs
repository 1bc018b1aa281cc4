//! In which order a worker's frames, commands and deadlines are handled.

/// Number of frames after which a command comes first. Each takes microseconds.
const FRAMES_IN_A_ROW: u32 = 64;

/// What is handled next.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Turn<F, C> {
    /// What the worker sent.
    Frame(F),
    /// A command for it.
    Command(C),
    /// A deadline has passed.
    Due,
}

/// Frames come first: what a worker has sent counts before it is stopped, and no deadline passes while its frames wait. A worker that
/// sends without end delays its own end by few of them.
#[derive(Debug, Default)]
pub(super) struct Turns {
    /// Since the last command or deadline.
    frames: u32,
}

impl Turns {
    /// Waits for what is handled next. Those that are not are dropped, so they must be cancel safe.
    pub(super) async fn next<F, C>(
        &mut self,
        frame: impl Future<Output = F>,
        command: impl Future<Output = C>,
        due: impl Future<Output = ()>,
    ) -> Turn<F, C> {
        let turn = if self.frames < FRAMES_IN_A_ROW {
            tokio::select! {
                biased;
                frame = frame => Turn::Frame(frame),
                command = command => Turn::Command(command),
                () = due => Turn::Due,
            }
        } else {
            self.frames = 0;
            tokio::select! {
                biased;
                command = command => Turn::Command(command),
                frame = frame => Turn::Frame(frame),
                () = due => Turn::Due,
            }
        };
        self.frames = if matches!(turn, Turn::Frame(_)) { self.frames + 1 } else { 0 };
        turn
    }
}

#[cfg(test)]
mod tests {
    use std::future::{pending, ready};

    use super::*;

    #[tokio::test]
    async fn frames_come_first_and_do_not_delay_a_command_for_long() {
        let mut turns = Turns::default();
        for round in 0..3 {
            for frame in 0..FRAMES_IN_A_ROW {
                let turn = turns.next(ready(frame), ready("stop"), ready(())).await;
                assert_eq!(turn, Turn::Frame(frame), "{round}");
            }
            let turn = turns.next(ready(0), ready("stop"), ready(())).await;
            assert_eq!(turn, Turn::Command("stop"), "{round}");
        }
    }

    #[tokio::test]
    async fn without_commands_frames_are_read_without_end() {
        let mut turns = Turns::default();
        for frame in 0..3 * FRAMES_IN_A_ROW {
            let turn = turns.next(ready(frame), pending::<()>(), ready(())).await;
            assert_eq!(turn, Turn::Frame(frame));
        }
        assert_eq!(turns.next(pending::<u32>(), pending::<()>(), ready(())).await, Turn::Due);
    }
}
