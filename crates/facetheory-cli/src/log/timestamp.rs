//! The times of log lines.

use tabletheory::Timestamp;
use time::OffsetDateTime;

/// Formats times like 2026-11-15T12:00:00.000Z. The text of the latest second is reused, since most lines are written in it.
#[derive(Debug, Default)]
pub(super) struct TimestampText {
    /// The second that the text was built for; `None` before the first use.
    second: Option<i64>,
    text: String,
}

/// The length of `000Z`.
const FRACTION: usize = 4;

impl TimestampText {
    pub(super) fn format(&mut self, at: Timestamp) -> &str {
        let (second, millis) = (at.seconds(), at.millis().rem_euclid(1000));
        if self.second == Some(second) {
            self.text.truncate(self.text.len() - FRACTION);
        } else {
            (self.second, self.text) = (Some(second), whole_second(second));
        }
        for place in [100, 10, 1] {
            let digit = u8::try_from(millis / place % 10).unwrap_or_default();
            self.text.push(char::from(b'0' + digit));
        }
        self.text.push('Z');
        &self.text
    }
}

/// Formats a second like `2026-11-15T12:00:00.`
fn whole_second(second: i64) -> String {
    let time = OffsetDateTime::from_unix_timestamp(second).unwrap_or(OffsetDateTime::UNIX_EPOCH);
    let ((year, month, day), (hour, minute, second)) = (time.to_calendar_date(), time.to_hms());
    let month = u8::from(month);
    format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}.")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_formatted_as_rfc_3339() {
        let mut reused = TimestampText::default();
        for (millis, expected) in [
            (0, "1970-01-01T00:00:00.000Z"),
            (7, "1970-01-01T00:00:00.007Z"),
            (951_782_399_999, "2000-02-28T23:59:59.999Z"),
            (951_782_400_000, "2000-02-29T00:00:00.000Z"),
            (1_709_251_200_001, "2024-03-01T00:00:00.001Z"),
            (1_709_251_200_120, "2024-03-01T00:00:00.120Z"),
            (1_709_251_200_001, "2024-03-01T00:00:00.001Z"),
            (4_107_542_400_000, "2100-03-01T00:00:00.000Z"),
            (1_794_755_754_383, "2026-11-15T15:15:54.383Z"),
            (-1, "1969-12-31T23:59:59.999Z"),
        ] {
            assert_eq!(reused.format(Timestamp::from_millis(millis)), expected);
            assert_eq!(TimestampText::default().format(Timestamp::from_millis(millis)), expected);
        }
    }
}
