//! Placement of a gang's pods: all are planned before any write.

use tessera_placement::Time;
use tessera_placement::seats::{self, NoSeats, Places};
use tessera_placement::statement::Statement;

use crate::group::{Gang, Member, Placement};
use crate::open_seats::{self, FreeNodes};
use crate::state::State;

/// Places all open pods or, if not all of them fit, as many as do, but at least `needed`.
///
/// # Errors
/// Why fewer than `needed` pods fit.
pub(crate) fn place(
    state: &mut State,
    now: Time,
    gang: &Gang,
    open: &[&Member],
    needed: usize,
) -> Result<Vec<Placement>, String> {
    let open = open_seats::open_seats(&state.world, &state.gangs, &state.standing, now, open);
    let partners = gang.nodes();
    let (base, rankings, topology_keys) = state.world.base();
    let mut statement = Statement::new(base);
    let places = Places { topology_keys, partners: &partners };
    let filter = FreeNodes { now, open: &open, refusals: &state.refusals, standing: &state.standing };
    let placed = seats::place(&mut statement, rankings, &open.seats, needed, places, &filter);
    drop(statement);
    let placed = placed.map_err(|why| match why {
        NoSeats::Fatal(error) => error,
        NoSeats::NotManaged(seat) => format!(
            "no card of a managed pool is what pod {} of the gang asks for: gangs need managed pools",
            open.seats[seat].key.name
        ),
        NoSeats::TooFew(fit, sentence) => format!(
            "gang {}: {fit} of {needed} pods that it needs fit now; for the next, {sentence}",
            gang.id.name
        ),
    })?;
    Ok(open_seats::placements(&state.world, &open, placed))
}
