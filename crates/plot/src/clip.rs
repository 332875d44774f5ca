//! Clips lines and polygons to a panel.
//!
//! SVG could do this, but a clip path has an id, which would have to be its own among all pictures of an HTML page, and
//! far outlying points would be written only to be hidden.

use crate::mark::{Area, Point};

/// The pieces of a line inside of an area.
pub fn line(points: &[Point], area: &Area) -> Vec<Vec<Point>> {
    let mut pieces: Vec<Vec<Point>> = Vec::new();
    for pair in points.windows(2) {
        let Some((from, to)) = segment(pair[0], pair[1], area) else { continue };
        match pieces.last_mut() {
            // The piece continues: neither end was clipped.
            Some(piece) if piece.last() == Some(&from) && from == pair[0] => piece.push(to),
            _ => pieces.push(vec![from, to]),
        }
    }
    pieces
}

/// The part of a straight line inside, after Liang and Barsky.
fn segment(from: Point, to: Point, area: &Area) -> Option<(Point, Point)> {
    let (dx, dy) = (to.0 - from.0, to.1 - from.1);
    let (mut enter, mut leave) = (0.0f64, 1.0f64);
    let edges = [
        (-dx, from.0 - area.left),
        (dx, area.right - from.0),
        (-dy, from.1 - area.top),
        (dy, area.bottom - from.1),
    ];
    for (towards, distance) in edges {
        if towards == 0.0 {
            if distance < 0.0 {
                return None;
            }
        } else if towards < 0.0 {
            enter = enter.max(distance / towards);
        } else {
            leave = leave.min(distance / towards);
        }
    }
    let along = |share: f64| (from.0 + share * dx, from.1 + share * dy);
    let begin = if enter > 0.0 { along(enter) } else { from };
    let end = if leave < 1.0 { along(leave) } else { to };
    (enter <= leave).then_some((begin, end))
}

/// The part of a polygon inside of an area, after Sutherland and Hodgman: one edge of the area after the other.
pub fn polygon(corners: &[Point], area: &Area) -> Vec<Point> {
    let right_of = |edge: f64| move |(x, _): Point| x - edge;
    let below = |edge: f64| move |(_, y): Point| y - edge;
    let corners = cut(corners, right_of(area.left));
    let corners = cut(&corners, |point| -right_of(area.right)(point));
    let corners = cut(&corners, below(area.top));
    cut(&corners, |point| -below(area.bottom)(point))
}

/// Keeps the side of an edge on which `distance` is not negative.
fn cut(corners: &[Point], distance: impl Fn(Point) -> f64) -> Vec<Point> {
    let mut kept = Vec::with_capacity(corners.len());
    let previous = corners.iter().cycle().skip(corners.len().saturating_sub(1));
    for (&from, &to) in previous.zip(corners) {
        let (before, after) = (distance(from), distance(to));
        if (before < 0.0) != (after < 0.0) {
            let share = before / (before - after);
            kept.push((from.0 + share * (to.0 - from.0), from.1 + share * (to.1 - from.1)));
        }
        if after >= 0.0 {
            kept.push(to);
        }
    }
    kept
}

#[cfg(test)]
mod tests {
    use super::*;

    const AREA: Area = Area { left: 0.0, top: 0.0, right: 10.0, bottom: 10.0 };

    #[test]
    fn a_line_is_cut_where_it_leaves_and_resumes_where_it_returns() {
        let pieces = line(&[(-5.0, 5.0), (5.0, 5.0), (5.0, 25.0), (8.0, 25.0), (8.0, 5.0)], &AREA);
        assert_eq!(pieces, [vec![(0.0, 5.0), (5.0, 5.0), (5.0, 10.0)], vec![(8.0, 10.0), (8.0, 5.0)]]);
    }

    #[test]
    fn what_is_inside_is_left_as_it_is_and_what_is_outside_is_gone() {
        let inside = [(1.0, 1.0), (9.0, 9.0), (10.0, 0.0)];
        assert_eq!(line(&inside, &AREA), [inside.to_vec()]);
        assert_eq!(polygon(&inside, &AREA).len(), 3);
        let outside = [(11.0, 1.0), (20.0, 9.0), (12.0, 0.0)];
        assert!(line(&outside, &AREA).is_empty() && polygon(&outside, &AREA).is_empty());
        assert!(line(&[], &AREA).is_empty() && polygon(&[], &AREA).is_empty());
        assert!(line(&[(1.0, 1.0)], &AREA).is_empty());
    }

    #[test]
    fn a_polygon_loses_what_is_outside() {
        let large = [(-5.0, -5.0), (15.0, -5.0), (15.0, 15.0), (-5.0, 15.0)];
        let mut kept = polygon(&large, &AREA);
        kept.sort_by(|one, other| one.partial_cmp(other).unwrap());
        kept.dedup();
        assert_eq!(kept, [(0.0, 0.0), (0.0, 10.0), (10.0, 0.0), (10.0, 10.0)]);
    }
}
