//! Every key of the schema, with everything that may be wrong with it.

use serde_json::{Map, Value as Json, json};

use super::schema::{KEYS, Key, Kind};
use super::{ConfigError, ServerConfig};

const TOKEN: &str = "s3cret";

/// The path in a file, with names in place of the placeholders.
fn path(key: &Key) -> String {
    let tier = if key.path.ends_with("reserved_workers") {
        "critical"
    } else {
        "non-sheddable"
    };
    key.path
        .replace("<tier>", tier)
        .replace("<class>", "lint")
        .replace("<tenant>", "team")
        .replace("<token>", TOKEN)
}

/// The path in an error: a token is never shown.
fn shown(key: &Key) -> String {
    path(key).replace(&format!(".{TOKEN}"), "[0]")
}

/// YAML and TOML in which this key has this value, on line 2.
fn texts(key: &Key, value: &str) -> [(&'static str, String, Result<ServerConfig, ConfigError>); 2] {
    let path = path(key);
    let depth = path.matches('.').count();
    let yaml = format!(
        "# line 1\n{{{}: {value}{}\n",
        path.replace('.', ": {"),
        "}".repeat(depth + 1)
    );
    let toml = format!("# line 1\n{path} = {value}\n");
    let read = [ServerConfig::from_yaml(&yaml), ServerConfig::from_toml(&toml)];
    let [from_yaml, from_toml] = read;
    [("YAML", yaml, from_yaml), ("TOML", toml, from_toml)]
}

/// A value that stands for the key.
fn set(map: &mut Map<String, Json>, path: &str, value: Json) {
    match path.split_once('.') {
        None => {
            map.insert(path.to_owned(), value);
        }
        Some((section, rest)) => {
            let section = map.entry(section).or_insert_with(|| json!({}));
            set(section.as_object_mut().unwrap(), rest, value);
        }
    }
}

/// What must stand beside a key for its outermost values to be usable.
fn beside(map: &mut Map<String, Json>) {
    for (path, value) in [
        ("workers", json!(4096)),
        ("thresholds.enter_depth", json!(300_000)),
        ("thresholds.enter_wait", json!(10)),
        ("thresholds.shed_wait", json!(10)),
        ("tiers.non-sheddable.max_wait_ms", json!(86_400_000)),
        ("classes.lint.mean_ms", json!(0.001)),
        ("max_deadline_ms", json!(86_400_000)),
    ] {
        set(map, path, value);
    }
}

/// The same where the key is at its least.
fn beside_least(map: &mut Map<String, Json>) {
    for (path, value) in [
        ("thresholds.enter_depth", json!(1)),
        ("thresholds.enter_wait", json!(0.01)),
        ("thresholds.exit_wait", json!(0)),
        ("classes.lint.deadline_ms", json!(1)),
        ("classes.lint.mean_ms", json!(0.001)),
    ] {
        set(map, path, value);
    }
}

fn bounds(key: &Key) -> Option<(Json, Json, Vec<String>)> {
    match key.kind {
        Kind::Whole { least, most } => {
            let mut outside = vec![(most + 1).to_string()];
            outside.extend(least.checked_sub(1).map(|below| below.to_string()));
            Some((json!(least), json!(most), outside))
        }
        Kind::Real { least, most } => Some((
            json!(least),
            json!(most),
            vec![
                (most * 1.01 + 0.1).to_string(),
                (least * 0.99 - 0.00001).to_string(),
            ],
        )),
        _ => None,
    }
}

#[test]
fn a_wrong_value_of_any_key_is_named_with_its_line_key_value_and_limit() {
    for key in KEYS {
        let mut wrong: Vec<String> = vec!["[[]]".to_owned(), "99999999999999999999999".to_owned()];
        match key.kind {
            Kind::Whole { .. } => {
                wrong.extend(["-5", "2.5", "true", "\"4\"", "1e3", "0x10", "\"\""].map(str::to_owned));
            }
            Kind::Real { .. } => {
                wrong.extend(["-5", "true", "\"0.5\"", "nan", "inf", "1e999"].map(str::to_owned));
            }
            Kind::Switch => wrong.extend(["1", "\"true\"", "-5"].map(str::to_owned)),
            Kind::Tenant => wrong.extend(["\"\"", "\"caf\u{e9}\"", "5", "true"].map(str::to_owned)),
            Kind::Path => wrong.extend(["\"\"", "[1]", "5", "true"].map(str::to_owned)),
            Kind::Tiers => wrong.extend(["\"critical\"", "[\"critcal\"]", "true"].map(str::to_owned)),
            Kind::Classes => wrong.extend(["\"lint\"", "[\"No Class\"]", "true"].map(str::to_owned)),
        }
        wrong.extend(bounds(key).into_iter().flat_map(|(.., outside)| outside));
        for value in wrong {
            for (format, text, read) in texts(key, &value) {
                let error = read.expect_err(&text).to_string();
                let shown_value = if value.starts_with('[') {
                    "["
                } else {
                    value.as_str()
                };
                for word in [
                    "line 2, column ",
                    &shown(key),
                    &format!(" is {shown_value}"),
                    "must be ",
                    &key.must_be(),
                ] {
                    assert!(
                        error.contains(word),
                        "{format} {text}{error}\nshould say {word:?}"
                    );
                }
                for talk in ["invalid type", "u32", "u64", "expected", TOKEN] {
                    assert!(
                        !error.contains(talk),
                        "{format} {text}{error}\nshould not say {talk:?}"
                    );
                }
            }
        }
        let (_, text, read) = texts(key, "many")[0].clone();
        match (key.kind, read) {
            (Kind::Tenant | Kind::Path, read) => assert!(read.is_ok(), "{text}"),
            (_, read) => assert!(
                read.unwrap_err().to_string().contains("is many; it must be "),
                "{text}"
            ),
        }
    }
}

#[test]
fn both_ends_of_every_range_are_usable_and_the_profile_itself_refuses_what_lies_outside() {
    for key in KEYS {
        let Some((least, most, outside)) = bounds(key) else {
            continue;
        };
        for (value, around) in [(least, beside_least as fn(&mut _)), (most, beside)] {
            let mut map = Map::new();
            around(&mut map);
            set(&mut map, &path(key), value.clone());
            let read = ServerConfig::from_json(&Json::Object(map));
            assert!(read.is_ok(), "{} = {value}: {}", key.path, read.unwrap_err());
        }
        if ["server", "observe", "identities", "anonymous"]
            .iter()
            .any(|own| key.path.starts_with(own))
        {
            continue;
        }
        for value in outside {
            let mut map = Map::new();
            beside(&mut map);
            set(&mut map, &path(key), serde_json::from_str(&value).unwrap());
            let profile = serde_json::from_value::<holdoff_admission::Profile>(Json::Object(map));
            let refused = profile.map_or(true, |profile| profile.validate().is_err());
            assert!(refused, "{} = {value} is refused by the schema alone", key.path);
        }
    }
}

/// The fields that a struct has, from what serde says about one that it has not.
fn fields(read: impl Fn(Json) -> String, section: &str) -> Vec<String> {
    let mut map = Map::new();
    let at = if section.is_empty() {
        "?".to_owned()
    } else {
        format!("{section}.?")
    };
    set(&mut map, &at, json!(0));
    let said = read(Json::Object(map));
    let (_, known) = said
        .split_once("expected ")
        .unwrap_or_else(|| panic!("{section}: {said}"));
    known.split('`').skip(1).step_by(2).map(str::to_owned).collect()
}

#[test]
fn the_schema_has_every_key_that_the_structs_have_and_no_other() {
    let profile = |json| {
        serde_json::from_value::<holdoff_admission::Profile>(json)
            .unwrap_err()
            .to_string()
    };
    let own = |json| {
        serde_json::from_value::<super::Own>(json)
            .map(|_| ())
            .unwrap_err()
            .to_string()
    };
    let mut keys = 0;
    for (section, is_own) in [
        ("", false),
        ("tiers", false),
        ("tiers.critical", false),
        ("classes.lint", false),
        ("tenants.team", false),
        ("thresholds", false),
        ("", true),
        ("server", true),
        ("observe", true),
        ("anonymous", true),
        ("identities.s3cret", true),
    ] {
        let fields = if is_own {
            fields(own, section)
        } else {
            fields(profile, section)
        };
        let pattern = section
            .replace("critical", "<tier>")
            .replace("lint", "<class>")
            .replace("team", "<tenant>")
            .replace(TOKEN, "<token>");
        let known = super::schema::children(&pattern);
        for field in &fields {
            assert!(
                known.contains(&field.as_str()) || section == "tiers",
                "{section}.{field} is not in the schema"
            );
        }
        keys += fields.len();
        let both = !section.is_empty() && section != "tiers";
        assert!(
            !both || known.len() == fields.len(),
            "{section}: {known:?} and {fields:?}"
        );
    }
    // The sections themselves (8) and the tiers' names (3) are fields too; rights stand in two places.
    assert_eq!(keys, KEYS.len() + 8 + 3);
}

#[test]
fn an_unknown_key_is_named_with_its_line_and_the_one_that_was_meant() {
    for (text, at, words) in [
        (
            "workers: 3\nworker: 4\n",
            "line 2, column 1: worker is no key",
            "did you mean workers?",
        ),
        (
            "tiers:\n  critcal: {}\n",
            "line 2, column 3: tiers.critcal is",
            "did you mean tiers.critical?",
        ),
        (
            "tiers:\n  low: {}\n",
            "tiers.low",
            "one of critical, non-sheddable, deferrable",
        ),
        (
            "server:\n  drain: 4\n",
            "line 2, column 3: server.drain is",
            "did you mean server.drain_ms?",
        ),
        (
            "server:\n  dr: 4\n",
            "server.dr is",
            "one of max_body_bytes, body_ms",
        ),
        (
            "server:\n  drain_mss: 4\n",
            "server.drain_mss is",
            "did you mean server.drain_ms?",
        ),
        (
            "classes:\n  a: {mean: 5}\n",
            "line 2, column 7: classes.a.mean is",
            "one of mean_ms, p95_ms",
        ),
        (
            "classes:\n  A: {}\n",
            "the name of classes.A is \"A\"",
            "[a-z][a-z0-9._-]*",
        ),
        (
            "tenants:\n  \"\": {}\n",
            "the name of tenants. is \"\"",
            "1 to 128 printable",
        ),
        (
            "identities:\n  \"s3 cret\": {}\n",
            "the name of identities[0] is (token)",
            "1 to 512 printable",
        ),
        (
            "identities:\n  s3cret: {x: 1}\n",
            "identities[0].x is no key",
            "tenant, tiers, trusted",
        ),
        ("<<: {}\n", "<< is no key", "one of workers"),
    ] {
        let error = ServerConfig::from_yaml(text).unwrap_err().to_string();
        for word in [at, words] {
            assert!(error.contains(word), "{text}{error}\nshould say {word:?}");
        }
        assert!(!error.contains("s3"), "a token is shown: {error}");
    }
}

#[test]
fn text_that_is_no_profile_is_refused_in_words_of_its_own() {
    for (text, words) in [
        ("", "declares nothing"),
        ("# nothing\n\n", "declares nothing"),
        ("---\n", "declares nothing"),
        ("{}\n", "declares nothing"),
        ("workers: 3\n\tqueue: 4\n", "found a tab"),
        ("server:\n\tdrain_ms: 4\n", "a tab indents this line"),
        ("workers: [\n", "line "),
        ("many\n", "the profile is many; it must be a map of workers"),
        ("- 1\n", "the profile is [1]; it must be a map of"),
        (
            "workers: 1\n---\nworkers: 2\n",
            "line 2, column 1: a second document",
        ),
        ("workers: &a 1\nqueue: *a\n", "no anchors"),
        ("workers: !!int 1\n", "tags"),
        ("? [a]\n: 1\n", "a key must be plain text"),
        ("tiers: many\n", "tiers is many; it must be a map of <tier>"),
        ("classes: [a]\n", "classes is [a]; it must be a map of classes"),
        ("tenants: [a]\n", "it must be a map of tenants"),
    ] {
        let error = ServerConfig::from_yaml(text).unwrap_err().to_string();
        let words = words.replace("<tier>", "tiers");
        assert!(error.contains(&words), "{text:?}: {error}");
    }
    let deep = format!("classes: {}", "[".repeat(5_000));
    assert!(ServerConfig::from_yaml(&deep).is_err());
    for (text, words) in [
        ("", "declares nothing"),
        ("workers = \n", "line 1"),
        ("workers: 3\n", "not TOML"),
        ("[tiers.critical]\nqueue = 1\n[tiers.critical]\n", "line 3"),
        (
            "classes.lint.mean_ms = 2020-01-01\n",
            "is 2020-01-01; it must be a number in 0.001..=",
        ),
    ] {
        let error = ServerConfig::from_toml(text).unwrap_err().to_string();
        assert!(error.contains(words), "{text:?}: {error}");
    }
}

#[test]
fn a_value_that_breaks_another_ones_limit_is_named_with_its_line() {
    let text = "workers: 2\ntiers:\n  critical:\n    reserved_workers: 2\n";
    let error = ServerConfig::from_yaml(text).unwrap_err().to_string();
    assert_eq!(
        error,
        "line 4, column 23: tiers.critical.reserved_workers is 2; it must be in 0..=1 (less than workers, which is 2)"
    );
}

#[test]
fn the_same_profile_reads_the_same_in_yaml_toml_and_json() {
    let yaml = "workers: 3\nserver: {drain_ms: 7}\nclasses: {a: {mean_ms: 5}}\n\
                identities: {tok: {tenant: t, tiers: [critical]}}\n";
    let toml = "workers = 3\nserver.drain_ms = 7\nclasses.a.mean_ms = 5\n[identities.tok]\ntenant = \"t\"\ntiers = [\"critical\"]\n";
    let value = json!({"workers": 3, "server": {"drain_ms": 7}, "classes": {"a": {"mean_ms": 5}},
        "identities": {"tok": {"tenant": "t", "tiers": ["critical"]}}});
    let config = ServerConfig::from_yaml(yaml).unwrap();
    assert_eq!(config.limits.drain_ms, 7);
    assert_eq!(config.identities["tok"].tenant.as_deref(), Some("t"));
    for other in [
        ServerConfig::from_toml(toml).unwrap(),
        ServerConfig::from_json(&value).unwrap(),
    ] {
        assert_eq!(other.profile, config.profile);
        assert_eq!(other.limits, config.limits);
        assert_eq!(other.identities, config.identities);
    }
    assert_eq!(
        ServerConfig::from_json(&json!({})).unwrap().profile,
        holdoff_admission::Profile::default()
    );
}

/// The dotted pattern of every line of an example file that names a key, commented out or not, with the comment above it.
fn documented(text: &str) -> Vec<(String, String)> {
    let mut stack: Vec<(usize, String)> = Vec::new();
    let mut lines = Vec::new();
    let above = std::iter::once("").chain(text.lines());
    for (line, above) in text.lines().zip(above) {
        let indent = line.len() - line.trim_start().len();
        let body = line.trim_start();
        let body = body.strip_prefix("# ").unwrap_or(body);
        let Some((name, _)) = body.split_once(':') else {
            continue;
        };
        if name.contains(' ') || name.is_empty() {
            continue;
        }
        stack.retain(|(at, _)| *at < indent);
        stack.push((indent, name.to_owned()));
        let mut names: Vec<&str> = stack.iter().map(|(_, name)| name.as_str()).collect();
        let placeholder = match names.first() {
            Some(&"tiers") => "<tier>",
            Some(&"classes") => "<class>",
            Some(&"tenants") => "<tenant>",
            Some(&"identities") => "<token>",
            _ => "",
        };
        if names.len() == 3 && !placeholder.is_empty() {
            names[1] = placeholder;
        }
        lines.push((names.join("."), above.trim().to_owned()));
    }
    lines
}

#[test]
fn the_example_files_document_every_key_with_unit_range_and_default_as_the_schema_has_them() {
    let examples = [
        include_str!("../../../profiles/example.yaml"),
        include_str!("../../../profiles/identities.yaml"),
    ];
    let lines: Vec<_> = examples.into_iter().flat_map(documented).collect();
    let mut missing = String::new();
    for key in KEYS {
        let documents = format!("# {}; {}", key.says, key.limits());
        if !lines
            .iter()
            .any(|(path, line)| path == key.path && *line == documents)
        {
            missing.push_str(&format!("{} {documents}\n", key.path));
        }
    }
    assert!(missing.is_empty(), "not documented as it is:\n{missing}");
}
