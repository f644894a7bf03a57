//! Finds out which written bytes of an HTTP/2 connection are data of response bodies.

/// The size of a frame header: payload length, type, flags and stream.
const HEAD_BYTES: usize = 9;
/// The type of a frame with body data.
const DATA: u8 = 0;

/// The position in a sequence of frames that is written in pieces.
#[derive(Debug, Default)]
pub(super) struct H2Frames {
    head: [u8; HEAD_BYTES],
    /// How many bytes of the frame header are known.
    begun: usize,
    /// How many bytes of the payload follow.
    left: usize,
}

impl H2Frames {
    /// Moves on by these bytes. Returns whether any of them is body data.
    pub(super) fn contain_data(&mut self, mut bytes: &[u8]) -> bool {
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
    fn only_payloads_of_data_frames_are_data_however_they_are_split() {
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
                let mut positions = (index * step..).take(piece.len());
                assert_eq!(
                    frames.contain_data(piece),
                    positions.any(is_data),
                    "piece {index} of {step} bytes"
                );
            }
        }
    }
}
