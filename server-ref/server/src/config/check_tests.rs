//! What is said of a file with mistakes.

use super::{ConfigError, ServerConfig};

#[test]
fn every_mistake_of_a_file_is_named_at_once() {
    let error = ServerConfig::from_yaml("workers: many\nqueue: -1\nserver:\n  drain_ms: soon\n").unwrap_err();
    let ConfigError::Mistakes { named, more } = &error else {
        panic!("{error}")
    };
    assert_eq!((named.len(), *more), (3, 0), "{error}");
    let many: String = (0..1_000).map(|n| format!("x{n}: 1\n")).collect();
    let error = ServerConfig::from_yaml(&many).unwrap_err();
    let ConfigError::Mistakes { named, more } = &error else {
        panic!("{error}")
    };
    assert_eq!((named.len(), *more), (16, 984), "{error}");
    assert!(error.to_string().ends_with("\n  and 984 more"), "{error}");
}

#[test]
fn mistakes_that_only_show_beside_each_other_are_counted_too() {
    let classes: String = (0..20)
        .map(|n| format!("  c{n}: {{deadline_ms: 5000}}\n"))
        .collect();
    let text = format!("max_deadline_ms: 1\nclasses:\n{classes}");
    let error = ServerConfig::from_yaml(&text).unwrap_err().to_string();
    let named = error.lines().count() - 1;
    let more = error
        .lines()
        .last()
        .and_then(|line| line.trim().strip_prefix("and "));
    let more = more.and_then(|rest| rest.strip_suffix(" more"));
    let more: usize = more.unwrap_or_default().parse().unwrap_or_default();
    assert!(named == 16 && more >= 4, "{error}");
}

#[test]
fn a_number_or_a_switch_without_quotes_is_no_text() {
    for (key, words) in [
        ("observe.trace", "a path, in quotes"),
        ("server.vocabulary", "a path, in quotes"),
    ] {
        let (section, name) = key.split_once('.').unwrap();
        for value in ["5", "-5", "1e3", "0x1f", "1_000", ".5", "true", "No", ".inf"] {
            let error = ServerConfig::from_yaml(&format!("{section}:\n  {name}: {value}\n"));
            let error = error.unwrap_err().to_string();
            assert!(
                error.contains(&format!("{key} is {value}; it must be {words}")),
                "{error}"
            );
        }
    }
    for text in [
        "identities:\n  s: {tenant: 5}\n",
        "identities:\n  s: {tenant: yes}\n",
    ] {
        let error = ServerConfig::from_yaml(text).unwrap_err().to_string();
        assert!(error.contains("characters, in quotes where"), "{error}");
    }
    for value in [
        "'5'", "\"true\"", "5.jsonl", "trace", "inf", "0x", "e3", "1.2.3", "/tmp/5",
    ] {
        let config = ServerConfig::from_yaml(&format!("observe:\n  trace: {value}\n")).unwrap();
        let path = value.trim_matches(['"', '\'']);
        assert_eq!(config.observe.trace, Some(path.into()), "{value}");
    }
    assert!(ServerConfig::from_yaml("identities:\n  s: {tenant: '5'}\n").is_ok());
}

#[test]
fn a_key_that_is_there_twice_is_refused_with_both_lines() {
    let error = ServerConfig::from_yaml("workers: 3\nqueue: 1\nworkers: 4\n")
        .unwrap_err()
        .to_string();
    assert_eq!(
        error,
        "line 3, column 1: workers is written twice; the first is on line 1"
    );
    let error = ServerConfig::from_toml("workers = 3\nqueue = 1\nworkers = 4\n")
        .unwrap_err()
        .to_string();
    assert!(
        error.contains("line 3") && error.contains("duplicate key") && error.contains("workers"),
        "{error}"
    );
}
