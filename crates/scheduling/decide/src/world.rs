//! The cluster as observed and as decided, with its fleet of cards.

use tessera_cluster::{Asker, Cluster};
use tessera_placement::Time;
use tessera_placement::fleet::Fleet;
use tessera_placement::ranking::Rankings;
use tessera_placement::statement::Base;
use tessera_placement::value::RequestMix;
use tessera_placement::view::View;

use crate::teams::Teams;

/// Everything a node is judged by.
pub(crate) struct World {
    /// The DRA driver's name.
    pub driver: String,
    pub cluster: Cluster,
    pub asker: Asker,
    pub fleet: Fleet,
    pub rankings: Rankings,
    pub mix: RequestMix,
    /// Node labels for the distance between nodes, the narrowest first.
    pub topology_keys: Vec<String>,
    /// The namespaces of each GpuQuota.
    pub teams: Teams,
    /// Latest taint time of cards that may be allocated now; `None` before any list of claims.
    pub handed_over: Option<Time>,
}

impl World {
    pub fn new(driver: &str, asker: Asker, topology_keys: Vec<String>) -> Self {
        World {
            driver: driver.to_owned(),
            cluster: Cluster::default(),
            asker,
            fleet: Fleet::default(),
            rankings: Rankings::default(),
            mix: RequestMix::default(),
            topology_keys,
            teams: Teams::default(),
            handed_over: None,
        }
    }

    /// The state for trials, the rankings kept so far, and the labels of topology domains.
    pub fn base(&mut self) -> (Base<'_>, &mut Rankings, &[String]) {
        let base = Base {
            cluster: &mut self.cluster,
            fleet: &mut self.fleet,
            asker: &mut self.asker,
            driver: &self.driver,
            handed_over: self.handed_over,
            mix: &self.mix,
            limit: None,
        };
        (base, &mut self.rankings, &self.topology_keys)
    }

    /// The view for judging nodes, and the rankings kept so far.
    pub fn view(&mut self) -> (View<'_>, &mut Rankings) {
        let view = View {
            handed_over: self.handed_over,
            cluster: &self.cluster,
            fleet: &mut self.fleet,
            asker: &mut self.asker,
            driver: &self.driver,
            mix: &self.mix,
            limit: None,
        };
        (view, &mut self.rankings)
    }
}
