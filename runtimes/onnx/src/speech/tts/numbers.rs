//! Numbers as English words, for voices without digits.
//!
//! Words, their order and what stays unchanged are those of the library's rules for SpeechT5, which speak a zero only after a decimal
//! point.

use island_runtimes_kit::error::{EngineError, invalid_input};

const SMALL: [&str; 20] = [
    "",
    "one",
    "two",
    "three",
    "four",
    "five",
    "six",
    "seven",
    "eight",
    "nine",
    "ten",
    "eleven",
    "twelve",
    "thirteen",
    "fourteen",
    "fifteen",
    "sixteen",
    "seventeen",
    "eighteen",
    "nineteen",
];
const TENS: [&str; 10] =
    ["", "", "twenty", "thirty", "forty", "fifty", "sixty", "seventy", "eighty", "ninety"];
/// Names of groups of three digits, from the right.
const GROUPS: [&str; 12] = [
    "",
    "thousand",
    "million",
    "billion",
    "trillion",
    "quadrillion",
    "quintillion",
    "sextillion",
    "septillion",
    "octillion",
    "nonillion",
    "decillion",
];
const CURRENCIES: [(char, &str); 19] = [
    ('$', "dollars"),
    ('€', "euros"),
    ('£', "pounds"),
    ('¢', "cents"),
    ('¥', "japanese yen"),
    ('﷼', "saudi riyal"),
    ('₹', "indian rupees"),
    ('₽', "russian rubles"),
    ('฿', "thai baht"),
    ('₺', "turkish liras"),
    ('₴', "ukrainian hryvnia"),
    ('₣', "swiss francs"),
    ('₡', "costa rican colon"),
    ('₱', "philippine peso"),
    ('₪', "israeli shekels"),
    ('₮', "mongolian tögrög"),
    ('₩', "south korean won"),
    ('₦', "nigerian naira"),
    ('₫', "vietnamese Đồng"),
];

/// A number in a text.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Number<'t> {
    is_negative: bool,
    currency: Option<&'static str>,
    whole: &'t [char],
    /// Decimals.
    part: &'t [char],
    is_percent: bool,
    /// Its length in characters.
    length: usize,
}

/// Replaces the numbers of a text by words.
pub fn spell(text: &str) -> Result<String, EngineError> {
    let text: Vec<char> = without_commas(&text.chars().collect::<Vec<_>>());
    let mut spelt = String::new();
    let mut at = 0;
    while at < text.len() {
        let begins = at == 0 || !is_word(text[at - 1]);
        if let Some(number) = begins.then(|| number(&text[at..])).flatten() {
            spelt.push_str(&words(&number)?);
            at += number.length;
        } else {
            spelt.push(text[at]);
            at += 1;
        }
    }
    let mut single = String::with_capacity(spelt.len());
    for letter in spelt.chars() {
        if letter != ' ' || !single.ends_with(' ') {
            single.push(letter);
        }
    }
    Ok(single)
}

/// Removes the comma between two numbers; a third one starts anew.
fn without_commas(text: &[char]) -> Vec<char> {
    let mut out = Vec::with_capacity(text.len());
    let mut at = 0;
    while at < text.len() {
        let first = digits(&text[at..]);
        if first == 0 {
            out.push(text[at]);
            at += 1;
            continue;
        }
        out.extend(&text[at..at + first]);
        at += first;
        let second = if text.get(at) == Some(&',') { digits(&text[at + 1..]) } else { 0 };
        if second > 0 {
            out.extend(&text[at + 1..=at + second]);
            at += 1 + second;
        }
    }
    out
}

/// The number at the start of a text. It must not continue as a word: `12th` is not a number, and of `3.145` only the `3` is.
fn number(text: &[char]) -> Option<Number<'_>> {
    let is_negative = text.first() == Some(&'-');
    let mut at = usize::from(is_negative);
    let currency = text.get(at).and_then(|sign| CURRENCIES.iter().find(|(known, _)| known == sign));
    at += usize::from(currency.is_some());
    let count = digits(&text[at..]);
    let (whole, behind) = (at..at + count, at + count);
    let ends = |at: usize| !text.get(at).copied().is_some_and(is_word);
    let has_point = count > 0 && text.get(behind) == Some(&'.');
    let parts = if has_point { digits(&text[behind + 1..]).min(2) } else { 0 };
    // The digits up to a position where a word cannot continue.
    for part in (0..=parts).rev() {
        let part = if part > 0 { behind + 1..behind + 1 + part } else { behind..behind };
        for is_percent in [true, false] {
            let end = part.end + usize::from(is_percent);
            if count > 0 && (!is_percent || text.get(part.end) == Some(&'%')) && ends(end) {
                return Some(Number {
                    is_negative,
                    currency: currency.map(|(_, name)| *name),
                    whole: &text[whole],
                    part: &text[part],
                    is_percent,
                    length: end,
                });
            }
        }
    }
    None
}

fn words(number: &Number<'_>) -> Result<String, EngineError> {
    let count = number.whole.len();
    if count > 3 * GROUPS.len() {
        return Err(invalid_input(format!(
            "text has a number of {count} digits, {} can be spelt",
            3 * GROUPS.len()
        )));
    }
    let mut words = Vec::new();
    if number.is_negative {
        words.push("minus");
    }
    let groups = count.div_ceil(3);
    // The first group may be shorter.
    let first = count - 3 * (groups - 1);
    for group in 0..groups {
        let from = if group == 0 { 0 } else { first + 3 * (group - 1) };
        let value =
            number.whole[from..first + 3 * group].iter().fold(0, |sum, &digit| sum * 10 + value(digit));
        hundreds(value, &mut words);
        let unit = GROUPS[groups - 1 - group];
        if value > 0 && !unit.is_empty() {
            words.push(unit);
        }
    }
    let is_whole = number.part.is_empty() || number.part == ['0', '0'];
    if !is_whole {
        // Without digits before the point, nothing is spoken before it.
        if words.is_empty() {
            words.push("");
        }
        words.push("point");
        words
            .extend(number.part.iter().map(|&digit| if digit == '0' { "zero" } else { SMALL[value(digit)] }));
    }
    let nothing = words.is_empty() || words == ["minus"];
    let mut text = words.join(" ");
    if nothing && number.is_negative {
        text.push(' ');
    }
    for behind in number.is_percent.then_some("percent").into_iter().chain(number.currency) {
        text.push(' ');
        text.push_str(behind);
    }
    Ok(text)
}

/// A number below a thousand.
fn hundreds(value: usize, words: &mut Vec<&'static str>) {
    let (hundreds, rest) = (value / 100, value % 100);
    if hundreds > 0 {
        words.extend([SMALL[hundreds], "hundred"]);
        if rest > 0 {
            words.push("and");
        }
    }
    if rest < 20 {
        words.extend(Some(SMALL[rest]).filter(|_| rest > 0));
    } else {
        words.push(TENS[rest / 10]);
        words.extend(Some(SMALL[rest % 10]).filter(|_| rest % 10 > 0));
    }
}

fn digits(text: &[char]) -> usize {
    text.iter().take_while(|letter| letter.is_ascii_digit()).count()
}

fn value(digit: char) -> usize {
    digit as usize - '0' as usize
}

fn is_word(letter: char) -> bool {
    letter == '_' || letter.is_alphanumeric()
}
