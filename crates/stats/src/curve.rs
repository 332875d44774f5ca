//! Learning curves: scores between evaluations, and frames at which runs are compared.

/// The score at a frame, linear between the evaluations around it; none before the first and after the last. Points are
/// (frames, score) in the order of frames.
pub fn score_at(points: &[(f64, f64)], frames: f64) -> Option<f64> {
    let after = points.iter().position(|(at, _)| *at >= frames)?;
    let (at, score) = points[after];
    if at == frames {
        return Some(score);
    }
    let (before, previous) = *points.get(after.checked_sub(1)?)?;
    Some(previous + (score - previous) * (frames - before) / (at - before))
}

/// The mean score over training, from the first evaluation to the last: the area under the curve over its width.
pub fn mean_over_training(points: &[(f64, f64)]) -> Option<f64> {
    let (first, last) = (points.first()?, points.last()?);
    let width = last.0 - first.0;
    let area = |pair: &[(f64, f64)]| (pair[1].0 - pair[0].0) * (pair[0].1 + pair[1].1) / 2.0;
    Some(if width > 0.0 { points.windows(2).map(area).sum::<f64>() / width } else { last.1 })
}

/// The points up to a frame, with the score there as the last one; none if the run has not been evaluated so far.
pub fn until(points: &[(f64, f64)], frames: f64) -> Option<Vec<(f64, f64)>> {
    let score = score_at(points, frames)?;
    let before = points.iter().copied().filter(|(at, _)| *at < frames);
    Some(before.chain([(frames, score)]).collect())
}

/// At most `count` frames, equally spaced, at which every one of these runs has a score; the ends included.
pub fn common_frames<'a>(runs: impl IntoIterator<Item = &'a [(f64, f64)]>, count: usize) -> Vec<f64> {
    let ends = runs.into_iter().filter_map(|points| Some((points.first()?.0, points.last()?.0)));
    let (start, end) =
        ends.fold((f64::NEG_INFINITY, f64::INFINITY), |(start, end), run| (start.max(run.0), end.min(run.1)));
    if !start.is_finite() || start > end {
        return Vec::new();
    }
    if start == end || count < 2 {
        return vec![end];
    }
    let last = count - 1;
    // The last is exactly the end: a rounding error beyond it would have no score.
    let at =
        |index: usize| if index == last { end } else { start + (end - start) * index as f64 / last as f64 };
    (0..=last).map(at).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const POINTS: [(f64, f64); 3] = [(10.0, 1.0), (20.0, 3.0), (40.0, 3.0)];

    #[test]
    fn scores_are_linear_between_evaluations_and_unknown_outside() {
        let at = |frames| score_at(&POINTS, frames);
        assert_eq!([10.0, 15.0, 30.0, 40.0].map(at), [Some(1.0), Some(2.0), Some(3.0), Some(3.0)]);
        assert_eq!((at(9.0), at(41.0), score_at(&[], 1.0)), (None, None, None));
    }

    #[test]
    fn the_mean_over_training_weighs_by_frames() {
        assert_eq!(mean_over_training(&POINTS), Some((10.0 * 2.0 + 20.0 * 3.0) / 30.0));
        assert_eq!(mean_over_training(&POINTS[..1]), Some(1.0));
        assert_eq!(mean_over_training(&[]), None);
        assert_eq!(until(&POINTS, 15.0), Some(vec![(10.0, 1.0), (15.0, 2.0)]));
        assert_eq!(until(&POINTS, 50.0), None);
    }

    #[test]
    fn every_run_has_a_score_at_common_frames() {
        let other = [(0.0, 5.0), (33.3, 6.0)];
        let frames = common_frames([&POINTS[..], &other[..]], 7);
        assert_eq!((frames.len(), frames[0], frames[6]), (7, 10.0, 33.3));
        assert!(frames.iter().all(|at| score_at(&POINTS, *at).is_some() && score_at(&other, *at).is_some()));
        assert!(common_frames([&POINTS[..1], &POINTS[1..]], 7).is_empty(), "nothing in common");
        assert_eq!(common_frames([&POINTS[..1]], 7), [10.0]);
    }
}
