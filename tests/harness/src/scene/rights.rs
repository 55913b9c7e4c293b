//! Whether a service account has only the rights needed.

use crate::{Cluster, installation::NAMESPACE};

/// Checks that the requests of one of Tessera's service accounts so far have needed each right granted by the chart, and
/// no other. `elsewhere` are rights used by other tests; they may be used here or not.
///
/// # Panics
/// A right is unused or missing, or the cluster does not answer.
pub async fn each_right_is_used(cluster: &Cluster, account: &str, elsewhere: &[&str]) {
    let used = cluster.rights_used(NAMESPACE, account).unwrap_or_else(|error| panic!("{error}"));
    let granted = cluster.rights_granted(NAMESPACE, account).await.unwrap_or_else(|error| panic!("{error}"));
    let unused: Vec<&String> =
        granted.difference(&used).filter(|right| !elsewhere.contains(&right.as_str())).collect();
    assert!(unused.is_empty(), "{account} has rights that it never used: {unused:?}; it used {used:?}");
    let others: Vec<&String> = used.difference(&granted).collect();
    assert!(others.is_empty(), "{account} used rights that the chart does not give it: {others:?}");
    for right in elsewhere {
        assert!(granted.contains(*right), "{account} has no right {right} that could be tried elsewhere");
    }
}
