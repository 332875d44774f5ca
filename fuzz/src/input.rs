//! Bytes cut into numbers and pieces. Missing data is 0 or empty, so every input is valid.

use replay::codec::Codec;

pub struct Input<'a>(&'a [u8]);

impl<'a> Input<'a> {
    pub fn new(bytes: &'a [u8]) -> Self {
        Self(bytes)
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// So many bytes, or what is left.
    pub fn take(&mut self, count: usize) -> &'a [u8] {
        let (taken, rest) = self.0.split_at(count.min(self.0.len()));
        self.0 = rest;
        taken
    }

    pub fn rest(&mut self) -> &'a [u8] {
        std::mem::take(&mut self.0)
    }

    fn number<const N: usize>(&mut self) -> [u8; N] {
        let mut bytes = [0; N];
        let taken = self.take(N);
        bytes[..taken.len()].copy_from_slice(taken);
        bytes
    }

    pub fn byte(&mut self) -> u8 {
        u8::from_le_bytes(self.number())
    }

    pub fn u16(&mut self) -> u16 {
        u16::from_le_bytes(self.number())
    }

    /// A codec, as [`number_of`] writes it.
    pub fn codec(&mut self) -> Codec {
        Codec::ALL[usize::from(self.byte()) % Codec::ALL.len()]
    }

    /// A piece that says its length first, as [`piece`] writes it.
    pub fn piece(&mut self) -> &'a [u8] {
        let length = self.u16();
        self.take(length.into())
    }
}

/// What [`Input::piece`] reads.
pub fn piece(bytes: &[u8]) -> Vec<u8> {
    let length = u16::try_from(bytes.len()).expect("pieces of seeds are short");
    [&length.to_le_bytes(), bytes].concat()
}

/// What [`Input::codec`] reads.
pub fn number_of(codec: Codec) -> u8 {
    Codec::ALL.iter().position(|known| *known == codec).expect("all are listed") as u8
}
