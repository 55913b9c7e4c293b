//! Keeps the ResourceSlices of this node equal to what [`tessera_inventory::Pool`] says.
