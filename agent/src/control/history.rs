//! The load of the last hour, for plots.

use std::{collections::VecDeque, time::Duration};

use island_protocol::time::Timestamp;
use parking_lot::Mutex;
use serde::{Deserialize, Serialize};

/// Time between two points.
pub const STEP: Duration = Duration::from_secs(15);
/// Number of points: an hour.
const POINTS: usize = 240;

/// The load at one moment.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Point {
    /// When it was measured.
    pub at: Timestamp,
    /// Processors, percent.
    pub cpu: f32,
    /// Main memory, percent.
    pub memory: f32,
    /// The busiest GPU, percent; `None` if no GPU reports it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub gpu: Option<f32>,
    /// Memory of the fullest GPU, percent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub gpu_memory: Option<f32>,
    /// Number of jobs.
    pub jobs: u32,
}

/// The points of the last hour.
#[derive(Debug, Default)]
pub struct History(Mutex<VecDeque<Point>>);

impl History {
    /// Adds a point and removes the oldest.
    pub fn push(&self, point: Point) {
        let mut points = self.0.lock();
        if points.len() == POINTS {
            points.pop_front();
        }
        points.push_back(point);
    }

    /// All points, oldest first.
    pub fn points(&self) -> Vec<Point> {
        self.0.lock().iter().copied().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keeps_one_hour() {
        let history = History::default();
        for at in 0..300 {
            let at = Timestamp::from_unix_ms(at);
            history.push(Point { at, cpu: 0.0, memory: 0.0, gpu: None, gpu_memory: None, jobs: 0 });
        }
        let points = history.points();
        assert_eq!(points.len(), POINTS);
        assert_eq!(points[0].at, Timestamp::from_unix_ms(60));
    }
}
