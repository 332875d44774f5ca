//! Checks that libtorch loads and which GPUs it finds.

use anyhow::Result;

/// Prints as one line of JSON whether libtorch computes and how many GPUs it finds.
pub fn probe() -> Result<()> {
    // Computing a tensor shows that the library works, not only that it loads.
    let sum = agents::read::numbers(&tch::Tensor::from_slice(&[1.0f32, 2.0]).sum(tch::Kind::Float))[0];
    let gpus = if tch::Cuda::is_available() { tch::Cuda::device_count() } else { 0 };
    run::output::print_line(&serde_json::json!({ "works": sum == 3.0, "gpus": gpus }).to_string());
    Ok(())
}
