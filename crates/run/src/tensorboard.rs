//! TensorBoard's event file, written directly: records framed by masked CRC-32C around a small protobuf.
//!
//! Only scalars are needed, so the two messages are declared here; the format is fixed by TensorFlow's
//! `event.proto`, `summary.proto` and the TFRecord framing.

use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom};

use prost::Message;

/// A scalar event as the bytes to append to an `events.out.tfevents.…` file.
pub fn scalars(wall_time: f64, step: u64, values: &[(&str, f64)]) -> Vec<u8> {
    let value = |(tag, value): &(&str, f64)| Value { tag: (*tag).into(), simple_value: Some(*value as f32) };
    let summary = Summary { value: values.iter().map(value).collect() };
    framed(&Event { wall_time, step: step as i64, file_version: None, summary: Some(summary) })
}

/// The record every event file starts with.
pub fn header(wall_time: f64) -> Vec<u8> {
    framed(&Event { wall_time, step: 0, file_version: Some("brain.Event:2".into()), summary: None })
}

#[derive(Clone, PartialEq, Message)]
struct Event {
    #[prost(double, tag = "1")]
    wall_time: f64,
    #[prost(int64, tag = "2")]
    step: i64,
    #[prost(string, optional, tag = "3")]
    file_version: Option<String>,
    #[prost(message, optional, tag = "5")]
    summary: Option<Summary>,
}

#[derive(Clone, PartialEq, Message)]
struct Summary {
    #[prost(message, repeated, tag = "1")]
    value: Vec<Value>,
}

#[derive(Clone, PartialEq, Message)]
struct Value {
    #[prost(string, tag = "1")]
    tag: String,
    /// Optional, because a plain field with value 0 is not encoded.
    #[prost(float, optional, tag = "2")]
    simple_value: Option<f32>,
}

fn framed(event: &Event) -> Vec<u8> {
    let data = event.encode_to_vec();
    let length = (data.len() as u64).to_le_bytes();
    let mut out = Vec::with_capacity(data.len() + 16);
    out.extend(length);
    out.extend(masked(&length).to_le_bytes());
    out.extend(&data);
    out.extend(masked(&data).to_le_bytes());
    out
}

fn masked(bytes: &[u8]) -> u32 {
    crc32c::crc32c(bytes).rotate_right(15).wrapping_add(0xa282_ead8)
}

/// The length of a file up to its last complete event.
pub fn complete_length(file: &mut File) -> io::Result<u64> {
    let length = file.metadata()?.len();
    let mut at = 0;
    loop {
        let mut header = [0; 8];
        file.seek(SeekFrom::Start(at))?;
        if length - at < 16 {
            return Ok(at);
        }
        file.read_exact(&mut header)?;
        // Length, its checksum, the event, its checksum.
        let next = u64::from_le_bytes(header).checked_add(at + 16).filter(|next| *next <= length);
        match next {
            Some(next) => at = next,
            None => return Ok(at),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_is_framed_as_tensorflow_frames_it() {
        // From a bitwise CRC-32C and a hand-assembled protobuf in Python, following TFRecord's definition.
        let expected = "1800000000000000a37f4b2209000000000000f83f1a0d627261696e2e4576656e743a322a28646c";
        let bytes: String = header(1.5).iter().map(|byte| format!("{byte:02x}")).collect();
        assert_eq!(bytes, expected);
    }

    #[test]
    fn scalars_round_trip() {
        let bytes = scalars(2.0, 7, &[("score", 0.0), ("loss", 0.5)]);
        let event = Event::decode(&bytes[12..bytes.len() - 4]).unwrap();
        assert_eq!(event.step, 7);
        let summary = event.summary.unwrap();
        assert_eq!(summary.value[0].simple_value, Some(0.0));
        assert_eq!(summary.value[1], Value { tag: "loss".into(), simple_value: Some(0.5) });
    }
}
