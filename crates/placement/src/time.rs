/// Time since the Unix epoch, as the process knew it when it began; never goes back.
pub type Time = std::time::Duration;
