/// Time since the Unix epoch, by the wall clock at process start plus the time elapsed; never goes back.
pub type Time = std::time::Duration;
