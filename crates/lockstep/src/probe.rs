//! Says that libtorch loads and what it sees.

use anyhow::Result;

/// Prints whether a tensor can be computed and how many GPUs there are, as one line of JSON.
pub fn probe() -> Result<()> {
    // A tensor made and read back shows that the library works, not only that it was found.
    let sum = tch::Tensor::from_slice(&[1.0f32, 2.0]).sum(tch::Kind::Float).double_value(&[]);
    let gpus = if tch::Cuda::is_available() { tch::Cuda::device_count() } else { 0 };
    run::output::say(&serde_json::json!({ "works": sum == 3.0, "gpus": gpus }).to_string());
    Ok(())
}
