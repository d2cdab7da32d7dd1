//! Whose call it is, for what a server says of one caller only (scope tenant).
//!
//! A caller that works for many tenants must not hold all of them back because one is over its limit, and one tenant
//! with two tokens is still one. So calls are told apart by what the server tells them apart by: the tenant that they
//! say, else the credential that they carry. Only a keyed hash of it is kept, made new for each layer.

use std::hash::RandomState;

use holdoff_contract::Tenant;
use holdoff_policy::CallerKey;
use http::HeaderMap;
use http::header::AUTHORIZATION;

/// Finds in a request's fields what the server knows its caller by; `None` where nothing says it. The default is
/// [`by_authorization`]. Not for secrets to be kept: what it returns is hashed and dropped.
pub type Identify = fn(&HeaderMap) -> Option<&[u8]>;

/// The default [`Identify`]: the whole `Authorization` field. Give another where it changes with each request
/// (signatures, short-lived tokens) or where the credential stands in a field of its own:
///
/// ```
/// # use http::HeaderMap;
/// fn by_api_key(fields: &HeaderMap) -> Option<&[u8]> {
///     fields.get("x-api-key").map(|key| key.as_bytes())
/// }
/// # let layer = holdoff_tower::OverloadLayer::builder().identify(by_api_key).build();
/// ```
pub fn by_authorization(fields: &HeaderMap) -> Option<&[u8]> {
    fields.get(AUTHORIZATION).map(|value| value.as_bytes())
}

/// Makes the keys of one layer.
#[derive(Clone, Debug)]
pub(crate) struct Callers {
    pub(crate) identify: Identify,
    hasher: RandomState,
}

impl Default for Callers {
    fn default() -> Self {
        Self {
            identify: by_authorization,
            hasher: RandomState::new(),
        }
    }
}

impl Callers {
    /// The key of a call that goes out with this tenant and these fields.
    pub(crate) fn key(&self, tenant: Option<&Tenant>, fields: &HeaderMap) -> Option<CallerKey> {
        // The kind goes in first, so that nobody's tenant can be named like somebody's token.
        match tenant {
            Some(tenant) => Some(CallerKey::hashed(&(0_u8, tenant.as_str()), &self.hasher)),
            None => {
                (self.identify)(fields).map(|credential| CallerKey::hashed(&(1_u8, credential), &self.hasher))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use http::HeaderValue;

    use super::*;

    fn fields(token: &'static str) -> HeaderMap {
        HeaderMap::from_iter([(AUTHORIZATION, HeaderValue::from_static(token))])
    }

    #[test]
    fn a_tenant_that_is_said_comes_before_a_credential_and_nothing_is_nobody() {
        let callers = Callers::default();
        let tenant = Tenant::new("t-a").unwrap();
        let said = callers.key(Some(&tenant), &fields("Bearer 1"));
        assert!(said.is_some());
        assert_eq!(said, callers.key(Some(&tenant), &fields("Bearer 2")));
        assert_ne!(
            callers.key(None, &fields("Bearer 1")),
            callers.key(None, &fields("Bearer 2"))
        );
        assert_ne!(said, callers.key(None, &fields("t-a")));
        assert_eq!(callers.key(None, &HeaderMap::new()), None);
    }

    #[test]
    fn keys_are_made_new_for_each_layer() {
        let key = |callers: &Callers| callers.key(None, &fields("Bearer 1"));
        assert_ne!(key(&Callers::default()), key(&Callers::default()));
    }
}
