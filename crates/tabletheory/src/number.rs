//! DynamoDB's numbers: exact decimals of up to 38 digits.

use std::cmp::Ordering;
use std::fmt;
use std::str::FromStr;

use crate::error::{Error, Result, ensure};

/// The maximum number of significant digits.
pub(crate) const MAX_DIGITS: u32 = 38;
/// The power of ten of the largest number's first digit.
pub(crate) const MAX_MAGNITUDE: i32 = 125;
/// The power of ten of the smallest positive number.
pub(crate) const MIN_MAGNITUDE: i32 = -130;

/// The longest text that is parsed: the longest plain form of a valid number, with room for padding.
const MAX_TEXT: usize = 512;

/// An exact decimal in normal form: `1`, `1.0` and `1E0` are equal.
///
/// It has up to 38 significant digits and a magnitude from 1E-130 to 9.9…E+125, as in DynamoDB.
///
/// ```
/// use tabletheory::Number;
///
/// let price: Number = "1.50".parse()?;
/// assert_eq!(price.to_string(), "1.5");
/// assert!(price < Number::from(2));
/// assert_eq!(price.checked_add(&Number::from(1))?.to_string(), "2.5");
/// # Ok::<(), tabletheory::Error>(())
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Number {
    /// Never set for zero, so that equality can be derived.
    negative: bool,
    /// Without trailing zeros (zero itself is 0), below 10^38.
    digits: u128,
    /// The number is `digits × 10^exponent`; 0 for zero.
    exponent: i16,
}

impl Number {
    /// Zero.
    ///
    /// ```
    /// assert_eq!(tabletheory::Number::ZERO, "-0.00".parse()?);
    /// # Ok::<(), tabletheory::Error>(())
    /// ```
    pub const ZERO: Number = Number { negative: false, digits: 0, exponent: 0 };

    /// Returns the exact sum, or [`Kind::Invalid`](crate::Kind::Invalid) if it needs more than 38 digits.
    ///
    /// ```
    /// use tabletheory::Number;
    ///
    /// let tenth: Number = "0.1".parse()?;
    /// let fifth: Number = "0.2".parse()?;
    /// assert_eq!(tenth.checked_add(&fifth)?.to_string(), "0.3");
    /// assert!("1E100".parse::<Number>()?.checked_add(&Number::from(1)).is_err());
    /// # Ok::<(), tabletheory::Error>(())
    /// ```
    pub fn checked_add(&self, other: &Number) -> Result<Number> {
        if self.digits == 0 {
            return Ok(*other);
        }
        if other.digits == 0 {
            return Ok(*self);
        }
        let (high, low) = if self.exponent >= other.exponent { (self, other) } else { (other, self) };
        let shift = u32::from(high.exponent.abs_diff(low.exponent));
        // The low number's last digit is not zero, so neither is the sum's: a shift that overflows
        // 128 bits can only end in a sum of more than 38 digits.
        let scaled = 10_u128
            .checked_pow(shift)
            .and_then(|power| high.digits.checked_mul(power))
            .ok_or_else(too_many_digits)?;
        let (negative, digits) = if high.negative == low.negative {
            let sum = scaled.checked_add(low.digits).ok_or_else(too_many_digits)?;
            (high.negative, sum)
        } else if scaled >= low.digits {
            (high.negative, scaled - low.digits)
        } else {
            (low.negative, low.digits - scaled)
        };
        Number::normalized(negative, digits, i32::from(low.exponent))
    }

    /// Returns the whole part, saturated to 64 bits. A fraction is cut off.
    ///
    /// ```
    /// use tabletheory::Number;
    ///
    /// assert_eq!("-1.9".parse::<Number>()?.whole(), -1);
    /// assert_eq!("1E100".parse::<Number>()?.whole(), i64::MAX);
    /// # Ok::<(), tabletheory::Error>(())
    /// ```
    #[must_use]
    pub fn whole(&self) -> i64 {
        let power = 10_u128.checked_pow(self.exponent.unsigned_abs().into());
        let whole = if self.exponent >= 0 {
            power.and_then(|power| self.digits.checked_mul(power)).unwrap_or(u128::MAX)
        } else {
            power.map_or(0, |power| self.digits / power)
        };
        match (i64::try_from(whole), self.negative) {
            (Ok(whole), false) => whole,
            (Ok(whole), true) => -whole,
            (Err(_), false) => i64::MAX,
            (Err(_), true) => i64::MIN,
        }
    }

    /// The size in bytes as DynamoDB counts it: 1, plus 1 for each pair of digits, aligned to the decimal point, plus 1 for a
    /// minus sign.
    pub(crate) fn size(&self) -> usize {
        const MOST: usize = 21;
        let misaligned = u32::from(self.digits != 0 && self.exponent % 2 != 0);
        let pairs = (self.digit_count() + misaligned).div_ceil(2) as usize;
        (1 + pairs + usize::from(self.negative)).min(MOST)
    }

    fn normalized(negative: bool, mut digits: u128, mut exponent: i32) -> Result<Number> {
        if digits == 0 {
            return Ok(Number::ZERO);
        }
        while digits > u128::from(u64::MAX) && digits.is_multiple_of(10) {
            digits /= 10;
            exponent += 1;
        }
        // Most numbers fit 64 bits, which are divided several times faster.
        if let Ok(mut short) = u64::try_from(digits) {
            while short.is_multiple_of(10) {
                short /= 10;
                exponent += 1;
            }
            digits = short.into();
        }
        let count = digits.ilog10() + 1;
        if count > MAX_DIGITS {
            return Err(too_many_digits());
        }
        let magnitude = exponent + count.cast_signed() - 1;
        ensure!(
            magnitude <= MAX_MAGNITUDE,
            "a number is past the largest one, 9.9999999999999999999999999999999999999E+125"
        );
        ensure!(magnitude >= MIN_MAGNITUDE, "a number is closer to zero than the smallest one, 1E-130");
        let exponent = i16::try_from(exponent).map_err(|_| too_many_digits())?;
        Ok(Number { negative, digits, exponent })
    }

    fn digit_count(&self) -> u32 {
        self.digits.checked_ilog10().map_or(0, |log| log + 1)
    }

    /// Sign, magnitude of the first digit, and the digits aligned to 38, each negated for negative numbers.
    fn order_key(&self) -> (i32, i32, i128) {
        let sign = i32::from(self.digits != 0) * if self.negative { -1 } else { 1 };
        let count = self.digit_count();
        let magnitude = i32::from(self.exponent) + count.cast_signed();
        let aligned = self.digits * 10_u128.pow(MAX_DIGITS - count);
        (sign, sign * magnitude, i128::from(sign) * aligned.cast_signed())
    }
}

fn too_many_digits() -> Error {
    Error::invalid(format!("a number has more than {MAX_DIGITS} significant digits"))
}

impl Ord for Number {
    fn cmp(&self, other: &Self) -> Ordering {
        self.order_key().cmp(&other.order_key())
    }
}

impl PartialOrd for Number {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl FromStr for Number {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        let characters = text.len();
        ensure!(
            characters <= MAX_TEXT,
            "a number of {characters} characters is too long; the limit is {MAX_TEXT}"
        );
        parse(text).unwrap_or_else(|| Err(Error::invalid(format!("{text:?} is not a number"))))
    }
}

/// Returns `None` if the text is not a number, and an error if the number is out of bounds.
fn parse(text: &str) -> Option<Result<Number>> {
    /// So many digits fit 64 bits.
    const SHORT: usize = 18;
    // Almost all numbers are whole and short.
    if !text.is_empty() && text.len() <= SHORT && text.bytes().all(|byte| byte.is_ascii_digit()) {
        return text.parse::<u64>().ok().map(|digits| Number::normalized(false, digits.into(), 0));
    }
    let (negative, rest) = match text.as_bytes().first()? {
        b'-' => (true, &text[1..]),
        b'+' => (false, &text[1..]),
        _ => (false, text),
    };
    let (mantissa, exponent) = match rest.find(['e', 'E']) {
        Some(at) => (&rest[..at], parse_exponent(&rest[at + 1..])?),
        None => (rest, 0),
    };
    let (whole, fraction) = mantissa.split_once('.').unwrap_or((mantissa, ""));
    if whole.is_empty() && fraction.is_empty() {
        return None;
    }
    let mut digits: u128 = 0;
    let mut pending_zeros: i32 = 0;
    let mut scale: i32 = exponent;
    for (index, byte) in whole.bytes().chain(fraction.bytes()).enumerate() {
        if !byte.is_ascii_digit() {
            return None;
        }
        if index >= whole.len() {
            scale -= 1;
        }
        if byte == b'0' {
            pending_zeros += i32::from(digits != 0);
            continue;
        }
        let shift = 10_u128.checked_pow(pending_zeros.unsigned_abs() + 1);
        let shifted = shift.and_then(|power| digits.checked_mul(power));
        let Some(next) = shifted.and_then(|value| value.checked_add(u128::from(byte - b'0'))) else {
            return Some(Err(too_many_digits()));
        };
        digits = next;
        pending_zeros = 0;
    }
    Some(Number::normalized(negative, digits, scale + pending_zeros))
}

/// Clamped far outside the valid range, so that adding to it cannot overflow.
fn parse_exponent(text: &str) -> Option<i32> {
    const FAR: i32 = 100_000;
    let unsigned = text.strip_prefix(['+', '-']).unwrap_or(text);
    if unsigned.is_empty() || !unsigned.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    let magnitude = unsigned.parse::<i32>().unwrap_or(FAR).min(FAR);
    Some(if text.starts_with('-') { -magnitude } else { magnitude })
}

impl fmt::Display for Number {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let sign = if self.negative { "-" } else { "" };
        let exponent = usize::from(self.exponent.unsigned_abs());
        if self.exponent >= 0 {
            let short = u64::try_from(self.digits).ok();
            let power = 10_u64.checked_pow(self.exponent.unsigned_abs().into());
            return match short.zip(power).and_then(|(digits, power)| digits.checked_mul(power)) {
                Some(whole) => write!(f, "{sign}{whole}"),
                None => write!(f, "{sign}{}{:0<exponent$}", self.digits, ""),
            };
        }
        let digits = self.digits.to_string();
        match digits.len().checked_sub(exponent) {
            Some(point) if point > 0 => write!(f, "{sign}{}.{}", &digits[..point], &digits[point..]),
            _ => write!(f, "{sign}0.{digits:0>exponent$}"),
        }
    }
}

impl fmt::Debug for Number {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

macro_rules! from_integer {
    ($($integer:ty)*) => {$(
        impl From<$integer> for Number {
            fn from(value: $integer) -> Self {
                let value = i128::from(value);
                // An integer of 64 bits has at most 20 digits, well inside the limits.
                Number::normalized(value < 0, value.unsigned_abs(), 0).unwrap_or(Number::ZERO)
            }
        }

        impl From<$integer> for crate::value::Value {
            fn from(value: $integer) -> Self {
                crate::value::Value::N(value.into())
            }
        }

        impl TryFrom<&Number> for $integer {
            type Error = Error;

            fn try_from(number: &Number) -> Result<Self> {
                let whole = u32::try_from(number.exponent)
                    .ok()
                    .and_then(|exponent| 10_i128.checked_pow(exponent))
                    .and_then(|power| i128::try_from(number.digits).ok()?.checked_mul(power))
                    .map(|value| if number.negative { -value } else { value });
                whole
                    .and_then(|value| <$integer>::try_from(value).ok())
                    .ok_or_else(|| Error::invalid(format!(
                        "{number} does not fit in {}", stringify!($integer)
                    )))
            }
        }
    )*};
}

from_integer!(i8 i16 i32 i64 u8 u16 u32 u64);

impl TryFrom<f64> for Number {
    type Error = Error;

    /// Converts to the shortest decimal that parses as the same float.
    fn try_from(value: f64) -> Result<Self> {
        ensure!(value.is_finite(), "{value} cannot be stored: a number must be finite");
        format!("{value:e}").parse()
    }
}

#[cfg(test)]
mod tests;
