//! The instances of one service, so that "go elsewhere" has somewhere to go.
//!
//! An instance that is going away says retry=elsewhere (CONTRACT section 1, `draining`). A caller that knows one address
//! only can do no better than wait; one that knows the others asks one of them soon. All instances of a service share
//! its retry budget and its waiting places; hold-offs stay with the one that spoke.

use holdoff_policy::Instances;

use crate::origin::Origin;

/// Two to 16 origins that serve the same: any of them may be asked in place of another after retry=elsewhere.
///
/// A call goes first to the origin that its URL names; spreading first sends over instances is a load balancer's work.
/// Credentials and, where trusted, the tenant go along to each of them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InstanceList(Box<[Origin]>);

/// A list of instances that is none.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("instances: {given} different origins are given; it must be 2 to 16")]
pub struct InvalidInstances {
    /// Different origins that were given.
    pub given: usize,
}

impl InstanceList {
    /// The instances of one service; an origin that comes twice counts once.
    ///
    /// # Errors
    /// When there are fewer than 2 or more than 16 different origins.
    pub fn new(origins: impl IntoIterator<Item = Origin>) -> Result<Self, InvalidInstances> {
        let mut list: Vec<Origin> = Vec::new();
        for origin in origins {
            if !list.contains(&origin) {
                list.push(origin);
            }
        }
        let given = list.len();
        if (2..=usize::from(Instances::MAX)).contains(&given) {
            Ok(Self(list.into_boxed_slice()))
        } else {
            Err(InvalidInstances { given })
        }
    }

    /// The place of the instance with this scheme and authority, spelled as in [`Origin`].
    pub(crate) fn position(&self, scheme: &str, authority: &str) -> Option<u8> {
        let asked = (scheme, authority);
        let at = self.0.iter().position(|origin| origin.parts() == asked)?;
        u8::try_from(at).ok()
    }

    /// How many there are.
    pub(crate) fn known(&self) -> u8 {
        u8::try_from(self.0.len()).unwrap_or(Instances::MAX)
    }

    /// The one that stands for all of them in the table of destinations.
    pub(crate) fn key(&self) -> Option<(&str, &str)> {
        self.0.first().map(Origin::parts)
    }

    /// Scheme and authority of that instance; `None` where there is no such instance.
    pub(crate) fn at(&self, instance: u8) -> Option<(&str, &str)> {
        self.0.get(usize::from(instance)).map(Origin::parts)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn origins(texts: &[&str]) -> Vec<Origin> {
        texts.iter().map(|text| text.parse().unwrap()).collect()
    }

    #[test]
    fn an_instance_has_a_place_and_a_place_has_an_instance() {
        let list = InstanceList::new(origins(&["http://A:1", "https://b:2"])).unwrap();
        assert_eq!((list.position("http", "a:1"), list.known()), (Some(0), 2));
        assert_eq!(list.at(1), Some(("https", "b:2")));
        assert_eq!(list.at(2), None);
        assert_eq!(list.position("http", "c"), None);
    }

    #[test]
    fn one_origin_or_too_many_are_no_list() {
        for count in [0, 1, 17] {
            let texts: Vec<String> = (0..count).map(|n| format!("http://h{n}")).collect();
            let given = texts.iter().map(|text| text.parse().unwrap());
            assert_eq!(InstanceList::new(given), Err(InvalidInstances { given: count }));
        }
        let twice = InstanceList::new(origins(&["http://a", "http://A:80/"]));
        assert_eq!(
            twice.unwrap_err().to_string(),
            "instances: 1 different origins are given; it must be 2 to 16"
        );
    }
}
