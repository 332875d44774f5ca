//! Adam (Kingma and Ba 2015) over one flat tensor, with a state that can be saved.
//!
//! tch does not expose the moments of libtorch's own optimizer, and a run that can't save them can't be resumed exactly.

use safetensors::tensor::{Dtype, SafeTensors, TensorView};
use tch::{Device, Kind, Tensor};

use crate::memory::{floats, floats_mut};
use crate::parameters::{Parameters, WeightsError};

const BETA1: f64 = 0.9;
const BETA2: f64 = 0.999;

/// The optimizer and its moments.
#[derive(Debug)]
pub struct Adam {
    epsilon: f64,
    step: i64,
    first: Tensor,
    second: Tensor,
}

impl Adam {
    /// An optimizer that has seen nothing, for these parameters.
    pub fn new(parameters: &Parameters, epsilon: f64) -> Self {
        Self { epsilon, step: 0, first: parameters.zeros(), second: parameters.zeros() }
    }

    /// Steps made.
    pub fn step_count(&self) -> i64 {
        self.step
    }

    /// One step against `gradient`, one tensor per leaf; each element is first clamped to ±`clamp`. A learning rate of
    /// 0 changes nothing.
    pub fn step(
        &mut self,
        parameters: &mut Parameters,
        gradient: &[Tensor],
        clamp: Option<f64>,
        learning_rate: f64,
    ) {
        // Unlike PyTorch's, a step at learning rate 0 also leaves the moments and the step count unchanged.
        if learning_rate == 0.0 {
            return;
        }
        self.step += 1;
        let correction1 = 1.0 - BETA1.powf(self.step as f64);
        let correction2 = 1.0 - BETA2.powf(self.step as f64);
        // −lr/c₁ · m / (√v/√c₂ + ε) is written as m / (√v·slope + offset), so that one pass divides and adds.
        let factor = -correction1 / learning_rate;
        let line = Denominator { slope: factor / correction2.sqrt(), offset: factor * self.epsilon };
        let clamp = clamp.unwrap_or(f64::INFINITY);
        tch::no_grad(|| {
            if self.step_on_cpu(parameters, gradient, clamp as f32, line).is_none() {
                self.step_on_device(parameters, gradient, clamp, line);
            }
        });
    }

    /// One pass over memory; `None`, with nothing changed, if the tensors are not on the CPU.
    fn step_on_cpu(
        &mut self,
        parameters: &mut Parameters,
        gradient: &[Tensor],
        clamp: f32,
        line: Denominator,
    ) -> Option<()> {
        let gradient: Vec<Tensor> = gradient.iter().map(Tensor::contiguous).collect();
        let gradient = gradient.iter().map(floats).collect::<Option<Vec<_>>>()?;
        let mut values = floats_mut(parameters.flat_mut())?;
        let mut first = floats_mut(&mut self.first)?;
        let mut second = floats_mut(&mut self.second)?;
        for part in gradient {
            update(
                part,
                values.split_off_mut(..part.len())?,
                first.split_off_mut(..part.len())?,
                second.split_off_mut(..part.len())?,
                (clamp, line.slope as f32, line.offset as f32),
            );
        }
        Some(())
    }

    fn step_on_device(
        &mut self,
        parameters: &mut Parameters,
        gradient: &[Tensor],
        clamp: f64,
        line: Denominator,
    ) {
        let parts: Vec<_> = gradient.iter().map(|part| part.reshape([-1])).collect();
        let gradient = Tensor::cat(&parts, 0).clamp(-clamp, clamp);
        let _ = self.first.lerp_(&gradient, 1.0 - BETA1);
        let _ = self.second.lerp_(&gradient.square(), 1.0 - BETA2);
        let below = self.second.sqrt() * line.slope + line.offset;
        let _ = parameters.flat_mut().addcdiv_(&self.first, &below);
    }

    /// Moments and step count as a safetensors file.
    pub fn to_safetensors(&self) -> Vec<u8> {
        let (first, second, step) = (bytes_of(&self.first), bytes_of(&self.second), self.step.to_le_bytes());
        let moment =
            |bytes| TensorView::new(Dtype::F32, vec![self.first.numel()], bytes).expect("lengths match");
        let step = TensorView::new(Dtype::I64, vec![], &step).expect("one number");
        let views = [("first", moment(&first)), ("second", moment(&second)), ("step", step)];
        safetensors::serialize(views, None).expect("plain tensors can always be written")
    }

    /// Restores a saved state; on an error nothing changes.
    pub fn load_safetensors(&mut self, bytes: &[u8]) -> Result<(), WeightsError> {
        let file =
            SafeTensors::deserialize(bytes).map_err(|error| WeightsError::Format(error.to_string()))?;
        let count = self.first.numel();
        let find = |name: &str, what, dtype, shape: &[usize]| match file.tensor(name) {
            Ok(tensor) if tensor.dtype() == dtype && tensor.shape() == shape => Ok(tensor.data().to_vec()),
            _ => Err(WeightsError::Mismatch(format!("Adam's {what} is missing or has another size"))),
        };
        let first = find("first", "first moment", Dtype::F32, &[count])?;
        let second = find("second", "second moment", Dtype::F32, &[count])?;
        let step = find("step", "step count", Dtype::I64, &[])?;
        let tensor = |bytes: &[u8]| Tensor::from_data_size(bytes, &[count as i64], Kind::Float);
        self.first.copy_(&tensor(&first));
        self.second.copy_(&tensor(&second));
        self.step = i64::from_le_bytes(step.try_into().expect("one number has eight bytes"));
        Ok(())
    }
}

/// Denominator of the Adam update, with bias correction and step size folded in: sqrt(v)·slope + offset.
#[derive(Clone, Copy)]
struct Denominator {
    slope: f64,
    offset: f64,
}

/// Moments below this are taken as zero: they move nothing, and arithmetic on denormal numbers is slow.
const TINY: f32 = 1e-30;

fn update(
    gradient: &[f32],
    values: &mut [f32],
    first: &mut [f32],
    second: &mut [f32],
    (clamp, slope, offset): (f32, f32, f32),
) {
    const KEEP1: f32 = (1.0 - BETA1) as f32;
    const KEEP2: f32 = (1.0 - BETA2) as f32;
    for (((&g, value), m), v) in gradient.iter().zip(values).zip(first).zip(second) {
        let g = g.max(-clamp).min(clamp);
        let next = *m + (g - *m) * KEEP1;
        *m = if next.abs() < TINY { 0.0 } else { next };
        let next = *v + (g * g - *v) * KEEP2;
        *v = if next < TINY { 0.0 } else { next };
        *value += *m / (v.sqrt() * slope + offset);
    }
}

fn bytes_of(tensor: &Tensor) -> Vec<u8> {
    let mut bytes = vec![0; tensor.numel() * size_of::<f32>()];
    tensor.to_device(Device::Cpu).copy_data_u8(&mut bytes, tensor.numel());
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::architecture::{Architecture, Head};
    use crate::network::QNetwork;
    use rand::SeedableRng;
    use rand_chacha::ChaCha8Rng;
    use settings::networks::{MLP, NetworkInput};
    use tch::nn::{self, OptimizerConfig};

    const SIZES: Architecture = Architecture {
        input: NetworkInput::Vector(3),
        network: MLP,
        hidden: 8,
        head: Head { actions: 2, outputs_per_action: 1, dueling: false },
    };

    fn network() -> QNetwork {
        tch::set_num_threads(1);
        QNetwork::random(SIZES, Device::Cpu, &mut ChaCha8Rng::seed_from_u64(3)).unwrap()
    }

    fn gradient(parameters: &Parameters, step: i64) -> Vec<Tensor> {
        let wave = |leaf: &Tensor| {
            let numbers = Tensor::arange(leaf.numel() as i64, (Kind::Float, Device::Cpu));
            (numbers * 0.37 + step as f64 * 0.11).sin().view_as(leaf) * (1.0 + (step % 7) as f64)
        };
        parameters.leaves().iter().map(wave).collect()
    }

    fn row(parts: &[Tensor]) -> Tensor {
        Tensor::cat(&parts.iter().map(|part| part.reshape([-1])).collect::<Vec<_>>(), 0)
    }

    #[test]
    fn a_thousand_steps_agree_with_libtorchs_adam() {
        let mut ours = network();
        let store = nn::VarStore::new(Device::Cpu);
        let theirs = store.root().var_copy("x", ours.parameters().flat());
        let mut optimizer = nn::Adam { eps: 1e-8, ..nn::Adam::default() }.build(&store, 1e-3).unwrap();
        let mut adam = Adam::new(ours.parameters(), 1e-8);
        for step in 0..1_000 {
            let gradient = gradient(ours.parameters(), step);
            adam.step(ours.parameters_mut(), &gradient, None, 1e-3);
            optimizer.zero_grad();
            (&theirs * row(&gradient)).sum(Kind::Float).backward();
            optimizer.step();
        }
        let difference = (ours.parameters().flat() - &theirs).abs().max().double_value(&[]);
        assert!(difference < 1e-5, "largest difference {difference}");
    }

    #[test]
    fn a_learning_rate_of_zero_changes_nothing() {
        let mut network = network();
        let before = network.parameters().to_safetensors();
        let mut adam = Adam::new(network.parameters(), 1e-8);
        let gradient: Vec<Tensor> = network.parameters().leaves().iter().map(Tensor::zeros_like).collect();
        adam.step(network.parameters_mut(), &gradient, None, 0.0);
        assert_eq!(network.parameters().to_safetensors(), before);
    }

    #[test]
    fn the_pass_over_memory_agrees_with_the_tensor_operations() {
        let (mut one, mut other) = (network(), network());
        let mut fused = Adam::new(one.parameters(), 1e-8);
        let mut plain = Adam::new(other.parameters(), 1e-8);
        let line = Denominator { slope: -1e3, offset: -1e-5 };
        for step in 0..100 {
            let gradient = gradient(one.parameters(), step);
            tch::no_grad(|| {
                fused.step_on_cpu(one.parameters_mut(), &gradient, 2.0, line).unwrap();
                plain.step_on_device(other.parameters_mut(), &gradient, 2.0, line);
            });
        }
        let difference = (one.parameters().flat() - other.parameters().flat()).abs().max().double_value(&[]);
        assert!(difference < 1e-5, "largest difference {difference}");
    }

    #[test]
    fn training_continues_exactly_from_a_saved_state() {
        let (mut straight, mut resumed) = (network(), network());
        let mut adam = Adam::new(straight.parameters(), 1e-8);
        let mut other = Adam::new(resumed.parameters(), 1e-8);
        for step in 0..20 {
            let gradient = gradient(straight.parameters(), step);
            adam.step(straight.parameters_mut(), &gradient, None, 1e-3);
            other.step(resumed.parameters_mut(), &gradient, None, 1e-3);
            if step == 10 {
                let saved = other.to_safetensors();
                other = Adam::new(resumed.parameters(), 1e-8);
                assert!(other.load_safetensors(&saved[1..]).is_err());
                other.load_safetensors(&saved).unwrap();
            }
        }
        assert_eq!(straight.parameters().to_safetensors(), resumed.parameters().to_safetensors());
        assert_eq!(other.step_count(), 20);
    }
}
