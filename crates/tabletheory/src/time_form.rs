//! The two forms in which rows store `created_at` and `updated_at`.

use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;

use crate::clock::Timestamp;
use crate::number::Number;
use crate::value::Value;

/// The form in which a model stores `created_at` and `updated_at`. Either form is read, whichever one a model writes.
///
/// ```
/// use tabletheory::{Model, TimeForm};
///
/// #[derive(Model)]
/// struct Page {
///     #[model(pk)]
///     pk: String,
///     #[model(sk)]
///     sk: String,
///     #[model(updated_at)]
///     updated_at: String,
/// }
/// assert_eq!(Page::ROLES.time_form, TimeForm::Rfc3339);
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum TimeForm {
    /// Epoch seconds, as a number: for fields that are integers.
    #[default]
    Seconds,
    /// RFC 3339 in UTC with nanoseconds, as a string: for fields that are a `String`. TableTheory writes this form in Go and in
    /// TypeScript.
    Rfc3339,
}

impl TimeForm {
    /// Returns the time as it is stored.
    pub(crate) fn value(self, now: Timestamp) -> Value {
        match self {
            TimeForm::Seconds => now.seconds().into(),
            // Only a clock beyond the year 9999 has no such text.
            TimeForm::Rfc3339 => text(now).unwrap_or_default().into(),
        }
    }

    /// Converts a stored time of the other form to this one, `None` if it is not a time of the other form.
    pub(crate) fn convert(self, stored: &Value) -> Option<Value> {
        match (self, stored) {
            (TimeForm::Seconds, Value::S(text)) => {
                let time = OffsetDateTime::parse(text, &Rfc3339).ok()?;
                Some(time.unix_timestamp().into())
            }
            (TimeForm::Rfc3339, Value::N(number)) => {
                text(Timestamp::from_seconds(i64::try_from(number).ok()?)).map(Value::from)
            }
            _ => None,
        }
    }

    /// Whether a stored value means that the time was never set.
    pub(crate) fn is_unset(stored: Option<&Value>) -> bool {
        match stored {
            None => true,
            Some(Value::N(number)) => *number == Number::ZERO,
            Some(Value::S(text)) => text.is_empty(),
            Some(_) => false,
        }
    }
}

/// The time in RFC 3339, always with nine digits after the point, so that the text sorts like the time.
fn text(time: Timestamp) -> Option<String> {
    let nanos = i128::from(time.millis()) * 1_000_000;
    let time = OffsetDateTime::from_unix_timestamp_nanos(nanos).ok().filter(|time| time.year() >= 0)?;
    Some(format!(
        "{:04}-{:02}-{:02}T{:02}:{:02}:{:02}.{:09}Z",
        time.year(),
        u8::from(time.month()),
        time.day(),
        time.hour(),
        time.minute(),
        time.second(),
        time.nanosecond()
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_written_with_nine_digits_in_utc() {
        let written = |millis| TimeForm::Rfc3339.value(Timestamp::from_millis(millis));
        assert_eq!(written(1_700_000_000_123), "2023-11-14T22:13:20.123000000Z".into());
        assert_eq!(written(0), "1970-01-01T00:00:00.000000000Z".into());
        assert_eq!(written(-1), "1969-12-31T23:59:59.999000000Z".into());
        assert_eq!(TimeForm::Seconds.value(Timestamp::from_millis(1999)), 1.into());
        assert_eq!(written(i64::MAX), "".into());
    }

    #[test]
    fn times_of_go_and_typescript_are_read_as_seconds() {
        for (text, seconds) in [
            // Go leaves out zeros at the end, and writes the offset of its time zone.
            ("2023-11-14T22:13:20.123456789Z", 1_700_000_000),
            ("2023-11-14T22:13:20.1Z", 1_700_000_000),
            ("2023-11-14T22:13:20Z", 1_700_000_000),
            ("2023-11-15T00:13:20.5+02:00", 1_700_000_000),
            ("2023-11-14T22:13:20.123000000Z", 1_700_000_000),
            ("1969-12-31T23:59:59.5Z", -1),
        ] {
            assert_eq!(TimeForm::Seconds.convert(&text.into()), Some(seconds.into()), "{text}");
        }
        for text in ["", "yesterday", "2023-11-14", "2023-13-01T00:00:00Z", "1700000000"] {
            assert_eq!(TimeForm::Seconds.convert(&text.into()), None, "{text}");
        }
    }

    #[test]
    fn seconds_are_read_as_text() {
        let text = TimeForm::Rfc3339.convert(&1_700_000_000.into());
        assert_eq!(text, Some("2023-11-14T22:13:20.000000000Z".into()));
        assert_eq!(TimeForm::Rfc3339.convert(&i64::MAX.into()), None);
        assert_eq!(TimeForm::Rfc3339.convert(&Value::N("1.5".parse().expect("a number"))), None);
        assert_eq!(TimeForm::Rfc3339.convert(&Value::Bool(true)), None);
    }
}
