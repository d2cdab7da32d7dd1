//! Where a program under test says that it listens, and whether somebody does.

use std::time::Duration;

use serde_json::{Map, Value};
use tokio::net::TcpStream;

use super::Adapter;
use crate::server_drive::probe::Address;
use crate::verdict::NotRun;

/// How long a program that says where it listens may take to accept a connection there.
const ACCEPT_LIMIT: Duration = Duration::from_secs(2);

impl Adapter {
    /// A failure of the program, with the end of its stderr.
    pub(crate) async fn broke(&self, what: &str) -> NotRun {
        NotRun::PeerBroke(format!("{what}{}", self.last_words().await))
    }

    /// The address in a member of the reply to `command`, where it is there.
    ///
    /// # Errors
    /// It is no string, or no URL that can be reached over plain HTTP.
    pub(crate) async fn place(
        &self,
        command: &str,
        reply: &Map<String, Value>,
        member: &str,
    ) -> Result<Option<Address>, NotRun> {
        let given = match reply.get(member) {
            None | Some(Value::Null) => return Ok(None),
            Some(Value::String(url)) => Address::parse(url).map_err(|error| error.to_string()),
            Some(other) => Err(format!("{other} is no text")),
        };
        match given {
            Ok(address) => Ok(Some(address)),
            Err(why) => Err(self
                .broke(&format!("the {member} in the answer to `{command}`: {why}"))
                .await),
        }
    }

    /// The address in `url` of the reply to `command`, where somebody listens.
    ///
    /// # Errors
    /// There is none, it is no URL, or nobody accepts a connection within two seconds.
    pub(crate) async fn listens(&self, command: &str, reply: &Map<String, Value>) -> Result<Address, NotRun> {
        let Some(address) = self.place(command, reply, "url").await? else {
            return Err(self.broke(&format!("the answer to `{command}` has no url")).await);
        };
        let connect = TcpStream::connect(address.authority());
        let why = match tokio::time::timeout(ACCEPT_LIMIT, connect).await {
            Ok(Ok(_)) => return Ok(address),
            Ok(Err(error)) => error.to_string(),
            Err(_) => format!("not accepted within {} ms", ACCEPT_LIMIT.as_millis()),
        };
        let place = address.authority();
        Err(self
            .broke(&format!(
                "nobody listens at the url in the answer to `{command}`: cannot connect to {place}: {why}"
            ))
            .await)
    }
}
