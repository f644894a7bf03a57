//! The frames of an HTTP/2 connection, as far as it matters whether they carry anything that was asked for.

/// What a frame begins with: the length of its payload, its kind, its flags and its stream.
const HEAD_BYTES: usize = 9;
/// The kind of a frame that is a piece of a body.
const DATA: u8 = 0;

/// Where something that is written piece by piece stands among its frames.
#[derive(Debug, Default)]
pub(crate) struct H2Frames {
    head: [u8; HEAD_BYTES],
    /// How much of the head is there.
    begun: usize,
    /// How many bytes of the payload are yet to come.
    left: usize,
}

impl H2Frames {
    /// Goes on by these bytes. True if any of them belongs to a body.
    pub(crate) fn have_data(&mut self, mut bytes: &[u8]) -> bool {
        let mut is_data = false;
        while !bytes.is_empty() {
            let wanted = if self.begun < HEAD_BYTES { HEAD_BYTES - self.begun } else { self.left };
            let (here, rest) = bytes.split_at(wanted.min(bytes.len()));
            bytes = rest;
            if self.begun < HEAD_BYTES {
                self.head[self.begun..][..here.len()].copy_from_slice(here);
                self.begun += here.len();
                let [high, middle, low, ..] = self.head;
                self.left = u32::from_be_bytes([0, high, middle, low]) as usize;
            } else {
                is_data |= self.head[3] == DATA;
                self.left -= here.len();
            }
            if self.begun == HEAD_BYTES && self.left == 0 {
                self.begun = 0;
            }
        }
        is_data
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PING: u8 = 6;

    fn frame(kind: u8, payload: &[u8]) -> Vec<u8> {
        let length = u8::try_from(payload.len()).expect("a short one");
        [&[0, 0, length, kind, 0, 0, 0, 0, 1], payload].concat()
    }

    #[test]
    fn only_bytes_of_bodies_are_data_however_they_are_cut() {
        let written = [
            frame(PING, b"12345678"),
            frame(DATA, b""),
            frame(DATA, b"piece"),
            frame(PING, b"\0\0\0\0\0\0\0\0"),
            frame(DATA, b"!"),
        ]
        .concat();
        let (before, after) = (17 + 9 + 9, 17);
        let is_data = |at: usize| (before..before + 5).contains(&at) || at == before + 5 + after + 9;
        for step in 1..=written.len() {
            let mut frames = H2Frames::default();
            for (index, piece) in written.chunks(step).enumerate() {
                let mut places = (index * step..).take(piece.len());
                assert_eq!(frames.have_data(piece), places.any(is_data), "piece {index} of {step} bytes");
            }
        }
    }
}
