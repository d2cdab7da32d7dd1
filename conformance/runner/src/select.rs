//! Which cases run: the profile that is claimed, the filters, and the part of them that this machine takes.

use std::str::FromStr;

use clap::ValueEnum as _;

use crate::requirement::{Requirement, Requirements};

/// The claims that a report can be about (CONTRACT section 10).
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum Profile {
    /// REQ, HNT, CLI, VER and SEC of role client.
    ClientCore,
    /// CMP.
    ClientCompat,
    /// What a URL alone can show of SRV, SRQ, VER and SEC.
    ServerCore,
    /// All of SRV and ADM; needs fixtures.
    ServerAdmission,
    /// INT.
    Relay,
    /// GRP of role client.
    GrpcClient,
    /// GRP of role server.
    GrpcServer,
}

impl std::fmt::Display for Profile {
    /// As the option spells it.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let value = self.to_possible_value();
        f.write_str(value.as_ref().map_or("", |value| value.get_name()))
    }
}

impl Profile {
    /// The mode of the command line that judges this profile (`vectors` judges what `client` does).
    pub fn mode(self) -> &'static str {
        match self {
            Profile::ClientCore | Profile::ClientCompat | Profile::GrpcClient => "client",
            Profile::ServerCore | Profile::ServerAdmission | Profile::GrpcServer => "server",
            Profile::Relay => "relay",
        }
    }

    /// True when a requirement belongs to the profile.
    pub fn holds(self, requirement: &Requirement) -> bool {
        let family = requirement.id.split('-').next().unwrap_or_default();
        let plays = |role: &str| requirement.role == role || requirement.role == "both";
        match self {
            Profile::ClientCore => plays("client") && ["REQ", "HNT", "CLI", "VER", "SEC"].contains(&family),
            Profile::ClientCompat => family == "CMP",
            Profile::Relay => family == "INT",
            Profile::GrpcClient => plays("client") && family == "GRP",
            Profile::GrpcServer => plays("server") && family == "GRP",
            Profile::ServerCore => plays("server") && ["SRV", "SRQ", "VER", "SEC"].contains(&family),
            Profile::ServerAdmission => {
                plays("server") && ["SRV", "SRQ", "VER", "SEC", "ADM"].contains(&family)
            }
        }
    }
}

/// The most parts that a run may be cut into.
pub const MAX_SHARDS: usize = 64;

/// One of `n` parts of the selected cases. Together the parts are the whole, and no case is in two.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Shard {
    /// From 1.
    pub index: usize,
    /// 1..=[`MAX_SHARDS`].
    pub of: usize,
}

impl Shard {
    /// True when the `n`-th selected case (from 0) is in this part.
    pub fn holds(self, n: usize) -> bool {
        n % self.of == self.index - 1
    }
}

impl std::fmt::Display for Shard {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}/{}", self.index, self.of)
    }
}

impl FromStr for Shard {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let bad = || format!("{text:?} is not i/n with 1 <= i <= n <= {MAX_SHARDS}, for instance 1/3");
        let (index, of) = text.split_once('/').ok_or_else(bad)?;
        let number = |text: &str| text.parse::<usize>().map_err(|_| bad());
        let (index, of) = (number(index)?, number(of)?);
        if (1..=MAX_SHARDS).contains(&of) && (1..=of).contains(&index) {
            Ok(Self { index, of })
        } else {
            Err(bad())
        }
    }
}

/// What the id of a vector has before the vector's own name.
pub const VECTOR: &str = "vector/";

/// Which cases run, and how.
#[derive(Debug, Clone, Default)]
pub struct Selection {
    /// Whole case ids, a vector's with or without `vector/`, parts of case ids, or whole requirement ids; a case matches any of
    /// them. Empty: all.
    pub filters: Vec<String>,
    /// Those filters that are the whole id of a case, and therefore match only that one.
    pub exact: Vec<String>,
    /// Only cases that speak for this profile.
    pub profile: Option<Profile>,
    /// Only this part of them.
    pub shard: Option<Shard>,
    /// Stop at the first failure.
    pub fail_fast: bool,
    /// How many cases that measure no time run side by side, 1..=[`crate::run::MAX_JOBS`].
    pub jobs: usize,
    /// The seed of the run, for the reproduce line.
    pub seed: u64,
    /// The command line up to the filter, for the reproduce line.
    pub invocation: String,
}

impl Selection {
    /// True when the selection takes in a case with this id and these requirements.
    pub fn takes(&self, id: &str, speaks_for: &[String], requirements: &Requirements) -> bool {
        let part = |filter: &String| id.contains(filter.as_str()) && !self.exact.contains(filter);
        let is = |filter: &String| id == filter || id.strip_prefix(VECTOR) == Some(filter.as_str());
        let names = |filter: &String| is(filter) || speaks_for.contains(filter) || part(filter);
        let named = self.filters.is_empty() || self.filters.iter().any(names);
        let profiled = self.profile.is_none_or(|profile| {
            speaks_for
                .iter()
                .filter_map(|id| requirements.get(id))
                .any(|r| profile.holds(r))
        });
        named && profiled
    }

    /// This machine's part of the cases that were taken in.
    pub(crate) fn part<T>(&self, all: Vec<T>) -> Vec<T> {
        match self.shard {
            None => all,
            Some(shard) => all
                .into_iter()
                .enumerate()
                .filter(|(n, _)| shard.holds(*n))
                .map(|(_, case)| case)
                .collect(),
        }
    }

    pub(crate) fn reproduce(&self, id: &str) -> String {
        format!("{} --filter {id} --seed {}", self.invocation, self.seed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn taken(filter: &str, exact: &[&str], id: &str) -> bool {
        let requirements = Requirements::load_embedded().unwrap();
        let selection = Selection {
            filters: vec![filter.to_owned()],
            exact: exact.iter().map(|id| (*id).to_owned()).collect(),
            ..Selection::default()
        };
        selection.takes(id, &["CLI-06".to_owned()], &requirements)
    }

    #[test]
    fn a_filter_is_a_part_of_an_id_or_a_requirement_and_a_whole_id_matches_only_itself() {
        assert!(taken("retry", &[], "stop-retry-no"));
        assert!(taken("CLI-06", &[], "stop-retry-no"));
        assert!(!taken("CLI-0", &[], "stop-retry-no"));
        assert!(taken("stop-retry-no", &["stop-retry-no"], "stop-retry-no"));
        assert!(!taken(
            "stop-retry-no",
            &["stop-retry-no"],
            "stop-retry-no-in-body-only"
        ));
        assert!(taken("ra-zero", &["ra-zero"], "vector/ra-zero"));
        assert!(taken("vector/ra-zero", &["vector/ra-zero"], "vector/ra-zero"));
        assert!(!taken("ra-zero", &["ra-zero"], "vector/ra-zero-in-body"));
        // A vector and a case whose name it begins: the one that was named.
        assert!(!taken(
            "window-whole-second",
            &["window-whole-second"],
            "window-whole-seconds"
        ));
    }

    #[test]
    fn a_profile_takes_the_requirements_of_its_families_and_role() {
        let all = Requirements::load_embedded().unwrap();
        let holds = |profile: Profile, id: &str| profile.holds(all.get(id).unwrap());
        assert!(holds(Profile::ClientCore, "CLI-01") && !holds(Profile::ClientCore, "CMP-01"));
        assert!(holds(Profile::ClientCompat, "CMP-01") && !holds(Profile::ClientCore, "SRV-01"));
        assert!(holds(Profile::ServerCore, "VER-01") && !holds(Profile::ServerCore, "ADM-01"));
        assert!(holds(Profile::ServerAdmission, "ADM-01") && !holds(Profile::ServerAdmission, "SEC-01"));
    }

    #[test]
    fn the_shards_together_are_the_whole_and_share_nothing() {
        let all: Vec<usize> = (0..23).collect();
        let mut together: Vec<usize> = (1..=4)
            .flat_map(|index| {
                let selection = Selection {
                    shard: Some(Shard { index, of: 4 }),
                    ..Selection::default()
                };
                selection.part(all.clone())
            })
            .collect();
        together.sort_unstable();
        assert_eq!(together, all);
    }

    #[test]
    fn a_shard_that_is_none_is_refused_with_the_limit() {
        assert_eq!("2/3".parse(), Ok(Shard { index: 2, of: 3 }));
        for bad in ["0/3", "4/3", "1/0", "1/65", "1", "a/b", "-1/2", ""] {
            let error = bad.parse::<Shard>().unwrap_err();
            assert!(error.contains("64"), "{bad}: {error}");
        }
    }
}
