//! Adam (Kingma and Ba 2015) over one flat tensor, with a state that can be saved.
//!
//! tch does not expose the moments of libtorch's own optimizer, and a run that can't save them can't be resumed exactly.

use safetensors::tensor::{Dtype, SafeTensors, TensorView};
use tch::{Kind, Tensor};

use crate::kernels::{self, AdamStep, Bf16};
use crate::memory::{elements, elements_mut};
use crate::parameters::{FlatMut, Parameters, WeightsError};
use crate::read;

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
    ///
    /// With `finite`, a boolean tensor, the step changes nothing if it is false, and the host does not wait for it. The caller,
    /// which learns later that it was false, then sets the count back ([`Adam::set_step_count`]).
    pub fn step(
        &mut self,
        parameters: &mut Parameters,
        gradient: &[Tensor],
        clamp: Option<f64>,
        learning_rate: f64,
        finite: Option<&Tensor>,
    ) {
        // Unlike PyTorch's, a step at learning rate 0 also leaves the moments and the step count unchanged.
        if learning_rate == 0.0 {
            return;
        }
        let line = self.next_line(learning_rate);
        let clamp = clamp.unwrap_or(f64::INFINITY);
        tch::no_grad(|| {
            if finite.is_some() || self.step_on_cpu(parameters, gradient, clamp, line).is_none() {
                self.step_on_device(parameters, gradient, clamp, line, finite);
            }
        });
    }

    /// Sets the number of steps made.
    pub fn set_step_count(&mut self, count: i64) {
        self.step = count;
    }

    /// Counts a step, and returns the denominator of its update.
    fn next_line(&mut self, learning_rate: f64) -> Denominator {
        self.step += 1;
        let correction1 = 1.0 - BETA1.powf(self.step as f64);
        let correction2 = 1.0 - BETA2.powf(self.step as f64);
        // −lr/c₁ · m / (√v/√c₂ + ε) is written as m / (√v·slope + offset), so that one pass divides and adds.
        let factor = -correction1 / learning_rate;
        Denominator { slope: factor / correction2.sqrt(), offset: factor * self.epsilon }
    }

    /// One pass over memory; `None`, with nothing changed, if the tensors are not on the CPU.
    fn step_on_cpu(
        &mut self,
        parameters: &mut Parameters,
        gradient: &[Tensor],
        clamp: f64,
        line: Denominator,
    ) -> Option<()> {
        let step = AdamStep {
            clamp: clamp as f32,
            rates: [(1.0 - BETA1) as f32, (1.0 - BETA2) as f32],
            slope: line.slope as f32,
            offset: line.offset as f32,
        };
        let gradient: Vec<Tensor> = gradient.iter().map(Tensor::contiguous).collect();
        let gradient = gradient.iter().map(Part::of).collect::<Option<Vec<_>>>()?;
        let FlatMut { values, rounded } = parameters.flat_mut();
        let mut values = elements_mut(values)?;
        let mut rounded = rounded.map(elements_mut::<Bf16>).unwrap_or_default().unwrap_or_default();
        let mut first = elements_mut(&mut self.first)?;
        let mut second = elements_mut(&mut self.second)?;
        for part in gradient {
            let count = part.len();
            let values = values.split_off_mut(..count)?;
            let first = first.split_off_mut(..count)?;
            let second = second.split_off_mut(..count)?;
            let rounded = if rounded.is_empty() { &mut [] } else { rounded.split_off_mut(..count)? };
            // In blocks, so that values are rounded while they are in the cache.
            for start in (0..count).step_by(BLOCK) {
                let range = start..(start + BLOCK).min(count);
                let (m, v) = (&mut first[range.clone()], &mut second[range.clone()]);
                match part {
                    Part::Full(gradient) => {
                        kernels::adam(step, &gradient[range.clone()], &mut values[range.clone()], m, v);
                    }
                    Part::Half(gradient) => {
                        kernels::adam(step, &gradient[range.clone()], &mut values[range.clone()], m, v);
                    }
                }
                if !rounded.is_empty() {
                    kernels::round(&values[range.clone()], &mut rounded[range]);
                }
            }
        }
        Some(())
    }

    fn step_on_device(
        &mut self,
        parameters: &mut Parameters,
        gradient: &[Tensor],
        clamp: f64,
        line: Denominator,
        finite: Option<&Tensor>,
    ) {
        let gradient = flat(gradient).clamp(-clamp, clamp);
        let FlatMut { values, rounded } = parameters.flat_mut();
        let first = self.first.lerp(&gradient, 1.0 - BETA1);
        let second = self.second.lerp(&gradient.square(), 1.0 - BETA2);
        let below = second.sqrt() * line.slope + line.offset;
        let changed = values.addcdiv(&first, &below);
        let apply = |old: &mut Tensor, new: Tensor| match finite {
            Some(finite) => old.copy_(&new.where_self(finite, old)),
            None => old.copy_(&new),
        };
        apply(values, changed);
        apply(&mut self.first, first);
        apply(&mut self.second, second);
        if let Some(rounded) = rounded {
            rounded.copy_(values);
        }
    }

    /// Moments and step count as a safetensors file.
    pub fn to_safetensors(&self) -> Vec<u8> {
        let (first, second, step) =
            (read::bytes(&self.first), read::bytes(&self.second), self.step.to_le_bytes());
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

/// Elements that are updated before they are rounded.
const BLOCK: usize = 4096;

/// The gradient of one leaf in memory.
#[derive(Clone, Copy)]
enum Part<'a> {
    Full(&'a [f32]),
    Half(&'a [Bf16]),
}

impl<'a> Part<'a> {
    fn of(tensor: &'a Tensor) -> Option<Self> {
        elements(tensor).map(Part::Full).or_else(|| elements(tensor).map(Part::Half))
    }

    fn len(&self) -> usize {
        match self {
            Self::Full(elements) => elements.len(),
            Self::Half(elements) => elements.len(),
        }
    }

    fn squared_norm(&self) -> f64 {
        match self {
            Self::Full(elements) => kernels::squared_norm(elements),
            Self::Half(elements) => kernels::squared_norm(elements),
        }
    }
}

/// The length of a gradient: on the CPU by one pass over memory, on a GPU as a tensor there.
pub fn norm(gradient: &[Tensor]) -> Tensor {
    let contiguous: Vec<Tensor> = gradient.iter().map(Tensor::contiguous).collect();
    match contiguous.iter().map(Part::of).collect::<Option<Vec<_>>>() {
        Some(parts) => Tensor::from(parts.iter().map(Part::squared_norm).sum::<f64>().sqrt() as f32),
        None => flat(gradient).norm(),
    }
}

/// A gradient in one row, f32.
fn flat(gradient: &[Tensor]) -> Tensor {
    let parts: Vec<_> = gradient.iter().map(|part| part.reshape([-1]).to_kind(Kind::Float)).collect();
    Tensor::cat(&parts, 0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::architecture::{Architecture, Head};
    use crate::network::QNetwork;
    use rand::SeedableRng;
    use rand_chacha::ChaCha8Rng;
    use settings::choices::Precision;
    use settings::networks::{MLP, NetworkInput};
    use tch::Device;
    use tch::nn::{self, OptimizerConfig};

    const SIZES: Architecture = Architecture {
        input: NetworkInput::Vector(3),
        network: MLP,
        hidden: 8,
        head: Head { actions: 2, outputs_per_action: 1, dueling: false },
        precision: Precision::F32,
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
            adam.step(ours.parameters_mut(), &gradient, None, 1e-3, None);
            optimizer.zero_grad();
            (&theirs * row(&gradient)).sum(Kind::Float).backward();
            optimizer.step();
        }
        let difference = read::numbers(&(ours.parameters().flat() - &theirs).abs().max())[0];
        assert!(difference < 1e-5, "largest difference {difference}");
    }

    #[test]
    fn a_learning_rate_of_zero_changes_nothing() {
        let mut network = network();
        let before = network.parameters().to_safetensors();
        let mut adam = Adam::new(network.parameters(), 1e-8);
        let gradient: Vec<Tensor> = network.parameters().leaves().iter().map(Tensor::zeros_like).collect();
        adam.step(network.parameters_mut(), &gradient, None, 0.0, None);
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
                plain.step_on_device(other.parameters_mut(), &gradient, 2.0, line, None);
            });
        }
        let difference = (one.parameters().flat() - other.parameters().flat()).abs().max();
        let difference = read::numbers(&difference)[0];
        assert!(difference < 1e-5, "largest difference {difference}");
    }

    #[test]
    fn a_step_on_the_device_is_applied_only_if_its_numbers_are_finite() {
        let (mut plain, mut gated) = (network(), network());
        let (mut adam, mut other) =
            (Adam::new(plain.parameters(), 1e-8), Adam::new(gated.parameters(), 1e-8));
        for step in 0..10 {
            let gradient = gradient(plain.parameters(), step);
            adam.step(plain.parameters_mut(), &gradient, Some(1.0), 1e-3, None);
            let before = gated.parameters().to_safetensors();
            let damaged: Vec<Tensor> = gradient.iter().map(|part| part * f64::NAN).collect();
            let (count, never) = (other.step_count(), Tensor::from(false));
            other.step(gated.parameters_mut(), &damaged, Some(1.0), 1e-3, Some(&never));
            other.set_step_count(count);
            assert_eq!(gated.parameters().to_safetensors(), before);
            let always = Tensor::from(true);
            other.step(gated.parameters_mut(), &gradient, Some(1.0), 1e-3, Some(&always));
        }
        let difference = (plain.parameters().flat() - gated.parameters().flat()).abs().max();
        let difference = read::numbers(&difference)[0];
        assert!(difference < 1e-6, "largest difference {difference}");
        assert_eq!(adam.step_count(), other.step_count());
    }

    #[test]
    fn a_step_keeps_the_rounded_values_those_of_the_full_ones() {
        let architecture = Architecture { precision: Precision::Bf16, ..SIZES };
        let mut network =
            QNetwork::random(architecture, Device::Cpu, &mut ChaCha8Rng::seed_from_u64(3)).unwrap();
        let mut adam = Adam::new(network.parameters(), 1e-8);
        let half = |part: Tensor| part.to_kind(Kind::BFloat16);
        let gradient: Vec<Tensor> = gradient(network.parameters(), 1).into_iter().map(half).collect();
        let norm = read::numbers(&norm(&gradient))[0];
        let expected = read::numbers(&flat(&gradient).norm())[0];
        assert!((norm - expected).abs() < 1e-4 * norm);
        for _ in 0..3 {
            adam.step(network.parameters_mut(), &gradient, None, 1e-2, None);
        }
        let FlatMut { values, rounded } = network.parameters_mut().flat_mut();
        assert!(rounded.unwrap().equal(&values.to_kind(Kind::BFloat16)));
    }

    #[test]
    fn training_continues_exactly_from_a_saved_state() {
        let (mut straight, mut resumed) = (network(), network());
        let mut adam = Adam::new(straight.parameters(), 1e-8);
        let mut other = Adam::new(resumed.parameters(), 1e-8);
        for step in 0..20 {
            let gradient = gradient(straight.parameters(), step);
            adam.step(straight.parameters_mut(), &gradient, None, 1e-3, None);
            other.step(resumed.parameters_mut(), &gradient, None, 1e-3, None);
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
