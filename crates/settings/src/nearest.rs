//! Suggestions for misspelt names.

/// The known name closest to `given`, if it is close enough to be a typo.
pub fn nearest<'a>(given: &str, known: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let similarity = |name: &str| strsim::jaro_winkler(&given.to_lowercase(), &name.to_lowercase());
    known
        .into_iter()
        .map(|name| (similarity(name), name))
        .filter(|(similarity, _)| *similarity > 0.75)
        .max_by(|a, b| a.0.total_cmp(&b.0))
        .map(|(_, name)| name)
}

/// ` (did you mean 'x'?)`, or nothing.
pub fn hint<'a>(given: &str, known: impl IntoIterator<Item = &'a str>) -> String {
    nearest(given, known).map_or(String::new(), |name| format!(" (did you mean '{name}'?)"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_typo_finds_its_name_and_nonsense_finds_none() {
        let known = ["temperature", "discount", "seed"];
        assert_eq!(nearest("temprature", known), Some("temperature"));
        assert_eq!(nearest("zzz", known), None);
        assert_eq!(hint("zzz", known), "");
    }
}
