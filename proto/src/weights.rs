//! Weights on the wire: segments of one shared file, and their reassembly.
//!
//! A version is sent in segments so that its receiver hears from the learner all the time, however slow the link. All
//! senders slice the same bytes. The receiver checks every segment before it keeps it, so that what it holds is bounded
//! by [`WEIGHTS_BYTES_MAX`] and by the number of segments that follows from it. Time is bounded by the caller, which
//! knows from [`WeightsAssembly::is_incomplete`] that more must come.

use std::sync::Arc;

use bytes::Bytes;
use replay::WeightsVersion;

use crate::convert::{Invalid, version, version_message};
use crate::limits::{SEGMENT_BYTES, WEIGHTS_BYTES_MAX};
use crate::v1;

/// Published weights. Clones share the bytes.
#[derive(Clone, Debug, PartialEq)]
pub struct Weights {
    pub version: WeightsVersion,
    pub safetensors: Bytes,
    /// The evaluation that the learner requests for these weights.
    pub evaluation: Option<EvaluationRequest>,
}

/// Games that the learner wants an evaluator to play.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EvaluationRequest {
    /// Unique in the run. Grows with every request.
    pub number: u64,
    /// Frames of the training that produced the weights.
    pub frames: u64,
    /// Updates of the training that produced the weights.
    pub updates: u64,
    /// Games for each player.
    pub episodes: u32,
    /// Play the baselines as well.
    pub baselines: bool,
}

impl From<EvaluationRequest> for v1::EvaluationRequest {
    fn from(request: EvaluationRequest) -> Self {
        let EvaluationRequest { number, frames, updates, episodes, baselines } = request;
        Self { number, frames, updates, episodes, baselines }
    }
}

impl From<v1::EvaluationRequest> for EvaluationRequest {
    fn from(request: v1::EvaluationRequest) -> Self {
        let v1::EvaluationRequest { number, frames, updates, episodes, baselines } = request;
        Self { number, frames, updates, episodes, baselines }
    }
}

/// The messages of a version, in order. Their bytes are slices of the version's.
#[derive(Debug)]
pub struct Segments {
    weights: Arc<Weights>,
    offset: usize,
}

impl Segments {
    pub fn new(weights: Arc<Weights>) -> Self {
        Self { weights, offset: 0 }
    }
}

impl Iterator for Segments {
    type Item = v1::WeightsSegment;

    fn next(&mut self) -> Option<v1::WeightsSegment> {
        let Weights { version, safetensors, evaluation } = &*self.weights;
        let first = self.offset;
        if first >= safetensors.len() {
            return None;
        }
        self.offset = safetensors.len().min(first + SEGMENT_BYTES);
        Some(v1::WeightsSegment {
            version: Some(version_message(*version)),
            offset: first as u64,
            bytes_total: safetensors.len() as u64,
            bytes: safetensors.slice(first..self.offset),
            evaluation: evaluation.map(Into::into),
        })
    }
}

/// What has arrived of a version.
#[derive(Debug, Default)]
pub struct WeightsAssembly {
    /// The version that is arriving, without its bytes.
    arriving: Option<Weights>,
    received: Vec<u8>,
    bytes_total: usize,
}

impl WeightsAssembly {
    /// Adds the next segment. Returns the weights when they are complete. After an error nothing is kept.
    pub fn add(&mut self, segment: &v1::WeightsSegment) -> Result<Option<Weights>, Invalid> {
        let checked = self.check(segment);
        if checked.is_err() {
            *self = Self::default();
        }
        let weights = checked?;
        if segment.offset == 0 {
            self.bytes_total = segment.bytes_total as usize;
            self.received = Vec::with_capacity(self.bytes_total);
        }
        self.received.extend_from_slice(&segment.bytes);
        if self.received.len() < self.bytes_total {
            self.arriving = Some(weights);
            return Ok(None);
        }
        let safetensors = std::mem::take(self).received.into();
        Ok(Some(Weights { safetensors, ..weights }))
    }

    /// Whether a version has begun and not ended.
    pub fn is_incomplete(&self) -> bool {
        self.arriving.is_some()
    }

    /// The version of the segment, which is either the first of a version or continues the one that is arriving.
    fn check(&self, segment: &v1::WeightsSegment) -> Result<Weights, Invalid> {
        let weights = Weights {
            version: version(segment.version.ok_or(Invalid::Missing("version"))?),
            safetensors: Bytes::new(),
            evaluation: segment.evaluation.map(Into::into),
        };
        let total = segment.bytes_total;
        if total == 0 || total > WEIGHTS_BYTES_MAX as u64 {
            return Err(Invalid::range("bytes_total", total, format!("1 to {WEIGHTS_BYTES_MAX}")));
        }
        if segment.offset != 0 {
            let arriving = self.arriving.as_ref().ok_or(Invalid::Missing("first segment"))?;
            if *arriving != weights || self.bytes_total as u64 != total {
                return Err(Invalid::range("segment", "of another version", "of the one that began"));
            }
            if segment.offset != self.received.len() as u64 {
                return Err(Invalid::range("offset", segment.offset, self.received.len().to_string()));
            }
        }
        let expected = (total - segment.offset.min(total)).min(SEGMENT_BYTES as u64);
        if segment.bytes.len() as u64 != expected {
            return Err(Invalid::range("bytes of the segment", segment.bytes.len(), expected.to_string()));
        }
        Ok(weights)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn weights(number: u64, bytes: usize) -> Arc<Weights> {
        let version = WeightsVersion { incarnation: 2, number };
        let safetensors = (0..bytes).map(|index| (index / 7 + number as usize) as u8).collect();
        let evaluation = EvaluationRequest { number, frames: 40, updates: 10, episodes: 8, baselines: true };
        Arc::new(Weights { version, safetensors, evaluation: (number % 2 == 1).then_some(evaluation) })
    }

    fn segments(number: u64, bytes: usize) -> Vec<v1::WeightsSegment> {
        Segments::new(weights(number, bytes)).collect()
    }

    #[test]
    fn weights_of_any_size_survive_the_round_trip_in_full_segments() {
        for (bytes, count) in [(1, 1), (SEGMENT_BYTES, 1), (SEGMENT_BYTES + 1, 2), (3 * SEGMENT_BYTES - 1, 3)]
        {
            for number in [5, 6] {
                let segments = segments(number, bytes);
                assert_eq!(segments.len(), count);
                let mut assembly = WeightsAssembly::default();
                for segment in &segments[..count - 1] {
                    assert_eq!(assembly.add(segment), Ok(None));
                    assert!(assembly.is_incomplete());
                }
                assert_eq!(assembly.add(&segments[count - 1]), Ok(Some((*weights(number, bytes)).clone())));
                assert!(!assembly.is_incomplete());
            }
        }
    }

    #[test]
    fn segments_are_slices_of_the_published_bytes() {
        let published = weights(1, 3 * SEGMENT_BYTES);
        let inside = published.safetensors.as_ptr_range();
        for segment in Segments::new(published) {
            assert!(inside.contains(&segment.bytes.as_ptr()));
        }
    }

    #[test]
    fn a_newer_version_may_begin_while_another_is_incomplete() {
        let (older, newer) = (segments(1, 3 * SEGMENT_BYTES), segments(2, SEGMENT_BYTES + 9));
        let mut assembly = WeightsAssembly::default();
        assert_eq!(assembly.add(&older[0]), Ok(None));
        assert_eq!(assembly.add(&older[1]), Ok(None));
        assert_eq!(assembly.add(&newer[0]), Ok(None));
        assert_eq!(assembly.add(&newer[1]), Ok(Some((*weights(2, SEGMENT_BYTES + 9)).clone())));
    }

    /// The error of the last segment after those before it were accepted. Then the assembly is empty.
    #[track_caller]
    fn refused(segments: &[v1::WeightsSegment]) -> String {
        let (last, before) = segments.split_last().unwrap();
        let mut assembly = WeightsAssembly::default();
        for segment in before {
            assert_eq!(assembly.add(segment), Ok(None));
        }
        let error = assembly.add(last).unwrap_err().to_string();
        assert!(!assembly.is_incomplete() && assembly.received.capacity() == 0);
        error
    }

    #[test]
    fn segments_out_of_order_are_refused() {
        let [first, second, third] = segments(1, 3 * SEGMENT_BYTES).try_into().unwrap();
        assert_eq!(refused(std::slice::from_ref(&second)), "first segment is missing");
        let skipped = refused(&[first.clone(), third]);
        assert_eq!(skipped, "offset is 262144, must be 131072");
        let repeated = refused(&[first, second.clone(), second]);
        assert_eq!(repeated, "offset is 131072, must be 262144");
    }

    #[test]
    fn segments_of_two_versions_are_not_mixed() {
        let [first, second] = segments(1, 2 * SEGMENT_BYTES).try_into().unwrap();
        let other_version = segments(3, 2 * SEGMENT_BYTES)[1].clone();
        let other_total = v1::WeightsSegment { bytes_total: second.bytes_total + 1, ..second.clone() };
        let other_evaluation = v1::WeightsSegment { evaluation: None, ..second };
        for wrong in [other_version, other_total, other_evaluation] {
            let error = refused(&[first.clone(), wrong]);
            assert_eq!(error, "segment is of another version, must be of the one that began");
        }
    }

    #[test]
    fn more_or_smaller_segments_than_the_total_needs_are_refused() {
        let [first, second] = segments(1, SEGMENT_BYTES + 9).try_into().unwrap();
        let sized = |segment: &v1::WeightsSegment, bytes: usize| v1::WeightsSegment {
            bytes: vec![0; bytes].into(),
            ..segment.clone()
        };
        for bytes in [0, 1, SEGMENT_BYTES - 1, SEGMENT_BYTES + 1, SEGMENT_BYTES + 9] {
            assert!(refused(&[sized(&first, bytes)]).contains("must be 131072"), "{bytes}");
        }
        for bytes in [0, 8, 10, SEGMENT_BYTES] {
            assert!(refused(&[first.clone(), sized(&second, bytes)]).contains("must be 9"), "{bytes}");
        }
        // One more after the last: the version is complete, so nothing has begun.
        let mut assembly = WeightsAssembly::default();
        assert_eq!(assembly.add(&first), Ok(None));
        assert!(assembly.add(&second).unwrap().is_some());
        let beyond = v1::WeightsSegment { offset: second.bytes_total, ..second };
        assert_eq!(assembly.add(&beyond).unwrap_err().to_string(), "first segment is missing");
    }

    #[test]
    fn a_total_beyond_the_limit_is_refused_before_memory_is_reserved() {
        let [segment] = segments(1, SEGMENT_BYTES).try_into().unwrap();
        for total in [0, WEIGHTS_BYTES_MAX as u64 + 1, u64::MAX] {
            let error = refused(&[v1::WeightsSegment { bytes_total: total, ..segment.clone() }]);
            assert!(error.starts_with("bytes_total is "), "{error}");
        }
        assert_eq!(refused(&[v1::WeightsSegment { version: None, ..segment }]), "version is missing");
    }
}
