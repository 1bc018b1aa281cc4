//! What a job went through, by the coordinator's clock.

use island_protocol::time::Timestamp;
use island_protocol_api::JobView;

use crate::{
    pages::duration,
    texts::{fill, t},
    view::Cell,
};

/// A step of a job.
#[derive(Debug)]
pub(super) struct Step {
    /// Its name in the script of the page.
    pub name: &'static str,
    pub text: &'static str,
    pub time: Cell,
    /// How long after the step before, or empty.
    pub after: String,
}

/// The steps whose times are known, in their order. A result that came whole has no first output.
pub(super) fn steps(job: &JobView) -> Vec<Step> {
    let steps = [
        ("accepted", t("step.accepted"), Some(job.created_at)),
        ("placed", t("step.placed"), job.placed_at),
        ("started", t("step.started"), job.started_at),
        ("first", t("step.first"), job.first_output_at),
        ("ended", t("step.ended"), job.completed_at),
    ];
    let mut before = None;
    let known = steps.into_iter().filter_map(|(name, text, at)| Some((name, text, at?)));
    let step = |(name, text, at)| {
        let after = after(before.replace(at), at);
        Step { name, text, time: Cell::Time(at), after }
    };
    known.map(step).collect()
}

fn after(before: Option<Timestamp>, at: Timestamp) -> String {
    let Some(before) = before else { return String::new() };
    // Clocks of several coordinators may differ.
    let ms = u64::try_from(at.unix_ms() - before.unix_ms()).unwrap_or(0);
    fill("step.after", &[("time", &duration(ms))])
}

#[cfg(test)]
mod tests {
    use island_protocol::job::JobStatus;
    use serde_json::json;

    use super::*;

    fn job(times: &[(&str, &str)]) -> JobView {
        let mut job = json!({
            "id": "0192f1a0-0000-7000-8000-000000000000",
            "workload_slug": "sim-chat",
            "status": JobStatus::Completed,
            "input": {},
            "created_at": "2026-11-26T10:00:00.000Z",
        });
        for (name, time) in times {
            job[*name] = json!(format!("2026-11-26T10:{time}Z"));
        }
        serde_json::from_value(job).expect("a job")
    }

    #[test]
    fn an_ended_job_shows_every_step_and_how_long_it_took() {
        let steps = steps(&job(&[
            ("placed_at", "00:00.250"),
            ("started_at", "00:02.250"),
            ("first_output_at", "00:02.750"),
            ("completed_at", "01:32.750"),
        ]));
        let shown: Vec<_> = steps.iter().map(|step| (step.name, step.after.as_str())).collect();
        assert_eq!(
            shown,
            [
                ("accepted", ""),
                ("placed", "after 250 ms"),
                ("started", "after 2.0 s"),
                ("first", "after 500 ms"),
                ("ended", "after 1 min 30 s"),
            ]
        );
    }

    #[test]
    fn unknown_times_are_left_out() {
        let steps = steps(&job(&[("completed_at", "00:03.000")]));
        let shown: Vec<_> = steps.iter().map(|step| (step.name, step.after.as_str())).collect();
        assert_eq!(shown, [("accepted", ""), ("ended", "after 3.0 s")]);
        // The time of an end by a clock that is behind is not a negative span.
        let end = Timestamp::from_unix_ms(0);
        assert_eq!(after(Some(end.plus_ms(5)), end), "after 0 ms");
    }
}
