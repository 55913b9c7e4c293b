//! Objects of the API server, parsed one by one: a malformed object is lost alone, without the rest of its list.
//!
//! The API server passes on opaque parameters as written by a client: JSON nested thousands of times, halves of
//! surrogate pairs, bytes other than UTF-8. kube parses a page of a list as one document, and fails for the whole page.

mod json;
mod watch;

use std::ops::Range;

use futures::AsyncReadExt as _;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ListMeta;
use kube::Client;
use kube::api::{ListParams, Request};

pub use json::{Name, Unreadable, from_json};
pub use watch::{Event, WatchError, watch};

/// Part of a list, as answered by the API server.
#[derive(Debug)]
pub struct Page {
    /// The list's metadata.
    pub metadata: ListMeta,
    body: Vec<u8>,
    items: std::vec::IntoIter<Range<usize>>,
}

impl Page {
    /// Asks for a part of the list of this resource, by its URL ([`kube::Api::resource_url`]).
    ///
    /// # Errors
    /// The API server refused or did not answer, or the answer is no list.
    pub async fn get(client: &Client, url: &str, which: &ListParams) -> Result<Self, kube::Error> {
        let request = Request::new(url).list(which).map_err(kube::Error::BuildRequest)?;
        let mut body = Vec::new();
        let mut answer = client.request_stream(request).await?;
        answer.read_to_end(&mut body).await.map_err(kube::Error::ReadEvents)?;
        let metadata = json::list_metadata(&body).map_err(kube::Error::SerdeError)?;
        let items = json::items(&body).into_iter();
        Ok(Page { metadata, body, items })
    }

    /// The next object, read by `read`.
    pub fn next<T>(
        &mut self,
        read: impl FnOnce(&[u8]) -> Result<T, serde_json::Error>,
    ) -> Option<(Name, Result<T, Unreadable>)> {
        let item = self.items.next()?;
        Some(json::object(&self.body[item], read))
    }
}
