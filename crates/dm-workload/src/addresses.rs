//! Keys that look like mail addresses: they use few different characters, have long common prefixes, and differ in
//! length.
//!
//! An address consists of a given name, a family name, a number if the address without it is already used, and a
//! domain. The key's index determines these parts, so that every index has a different address.

/// Size of a key in bytes. The bytes after the address are zero.
pub(crate) const ADDRESS_BYTES: usize = 32;

const GIVEN: [&str; 32] = [
    "alex", "amina", "andrea", "anna", "boris", "carlos", "chen", "clara", "david", "elena", "emma",
    "fatima", "felix", "hana", "hugo", "ines", "ivan", "james", "julia", "kofi", "laura", "lena", "marco",
    "maria", "mei", "nadia", "omar", "paul", "priya", "sara", "thomas", "yuki",
];
const FAMILY: [&str; 32] = [
    "adams", "ali", "bauer", "brown", "chan", "costa", "davis", "diaz", "evans", "fischer", "garcia",
    "gupta", "haas", "ito", "jones", "keller", "khan", "kim", "lee", "lopez", "martin", "meyer", "nguyen",
    "novak", "okafor", "patel", "rossi", "sato", "silva", "smith", "weber", "young",
];
const DOMAIN: [&str; 8] = [
    "mail.com",
    "post.net",
    "inbox.org",
    "uni.edu",
    "web.de",
    "box.jp",
    "home.fr",
    "work.io",
];
/// Number of pairs of names.
const PAIRS: u64 = (GIVEN.len() * FAMILY.len()) as u64;

/// Returns the address of key `index`. The number in an address has up to five digits, so `index` must be below
/// 819,200,000.
///
/// # Panics
/// Panics if `index` has no address.
pub(crate) fn address(index: u64) -> [u8; ADDRESS_BYTES] {
    use std::io::Write;
    let mut key = [0; ADDRESS_BYTES];
    let pair = index % PAIRS;
    let domain = DOMAIN[(index / PAIRS % DOMAIN.len() as u64) as usize];
    let number = index / PAIRS / DOMAIN.len() as u64;
    assert!(number < 100_000, "key {index} has no address");
    let (given, family) = (GIVEN[(pair / 32) as usize], FAMILY[(pair % 32) as usize]);
    let mut rest = key.as_mut_slice();
    let written = match number {
        0 => write!(rest, "{given}.{family}@{domain}"),
        taken => write!(rest, "{given}.{family}{taken}@{domain}"),
    };
    assert!(
        written.is_ok(),
        "key {index} has an address of more than 32 bytes"
    );
    key
}

/// Returns the index of the key with this address: the inverse of [`address`]. Returns `None` if no key has this
/// address.
pub(crate) fn index_of(key: &[u8; ADDRESS_BYTES]) -> Option<u64> {
    let text = core::str::from_utf8(key).ok()?.trim_end_matches('\0');
    let (name, domain) = text.split_once('@')?;
    let (given, rest) = name.split_once('.')?;
    let family = rest.trim_end_matches(|c: char| c.is_ascii_digit());
    let number = match &rest[family.len()..] {
        "" => 0,
        digits => digits.parse::<u64>().ok()?,
    };
    let place = |list: &[&str], name: &str| list.iter().position(|n| *n == name).map(|i| i as u64);
    let pair = place(&GIVEN, given)? * 32 + place(&FAMILY, family)?;
    let domain = place(&DOMAIN, domain)?;
    let index = number
        .checked_mul(DOMAIN.len() as u64)?
        .checked_add(domain)?
        .checked_mul(PAIRS)?
        .checked_add(pair)?;
    (number < 100_000 && address(index) == *key).then_some(index)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_text_and_say_whose_they_are() {
        let most = PAIRS * DOMAIN.len() as u64 * 100_000;
        for index in (0..20_000).chain(most - 20_000..most) {
            assert_eq!(index_of(&address(index)), Some(index));
        }
        assert!(address(0).starts_with(b"alex.adams@mail.com\0"));
        assert!(address(8_192 + 33).starts_with(b"amina.ali1@mail.com\0"));
        let mut other = address(7);
        other[31] = b'x';
        assert_eq!(index_of(&other), None);
    }
}
