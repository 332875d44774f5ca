//! The Q-network: states in, one value per action out.

use rand::Rng;
use tch::{Device, Kind, Tensor};

use crate::architecture::{Architecture, Input, Mismatch};
use crate::parameters::{Parameters, WeightsError};

/// A Q-network.
#[derive(Debug)]
pub struct QNetwork {
    architecture: Architecture,
    parameters: Parameters,
    device: Device,
}

impl QNetwork {
    /// A network with random weights.
    pub fn random(architecture: Architecture, device: Device, rng: &mut impl Rng) -> Result<Self, Mismatch> {
        let parameters = Parameters::random(&architecture, device, rng)?;
        Ok(Self { architecture, parameters, device })
    }

    /// A second network with the same weights.
    pub fn duplicate(&self) -> Self {
        Self { architecture: self.architecture, parameters: self.parameters.duplicate(), device: self.device }
    }

    /// Its shape.
    pub fn architecture(&self) -> &Architecture {
        &self.architecture
    }

    /// Its parameters.
    pub fn parameters(&self) -> &Parameters {
        &self.parameters
    }

    /// Its parameters, to be changed.
    pub fn parameters_mut(&mut self) -> &mut Parameters {
        &mut self.parameters
    }

    /// Where it lives.
    pub fn device(&self) -> Device {
        self.device
    }

    /// Replaces the weights by those of a safetensors file; on an error nothing changes.
    pub fn load(&mut self, bytes: &[u8]) -> Result<(), WeightsError> {
        self.parameters.load_safetensors(bytes)
    }

    /// A tensor of `count` states from their bytes: pictures stay bytes until they are on the device.
    pub fn states(&self, bytes: &[u8], count: usize) -> Tensor {
        self.architecture.input.states(bytes, count, self.device)
    }

    /// Q-values, one row per state.
    pub fn forward(&self, states: &Tensor) -> Tensor {
        let mut leaves = self.parameters.leaves().iter();
        let mut layer = || (leaves.next().expect("a weight"), leaves.next().expect("a bias"));
        let mut x = match self.architecture.input {
            Input::Pixels { .. } => states.to_kind(Kind::Float),
            Input::Vector(_) => {
                let (weight, bias) = layer();
                states.linear(weight, Some(bias)).relu()
            }
        };
        for (index, (_, _, stride)) in self.architecture.trunk.convolutions().iter().enumerate() {
            let (weight, bias) = layer();
            // Scaling the first weights to bytes of 0 to 255 is the same as scaling the pictures, and there are far fewer of them.
            let scaled = (index == 0).then(|| weight * (1.0 / 255.0));
            let weight = scaled.as_ref().unwrap_or(weight);
            x = x.conv2d(weight, Some(bias), [*stride, *stride], [0, 0], [1, 1], 1).relu_();
        }
        let (weight, bias) = layer();
        let hidden = x.flatten(1, -1).linear(weight, Some(bias)).relu_();
        let (weight, bias) = layer();
        let advantage = hidden.linear(weight, Some(bias));
        if !self.architecture.dueling {
            return advantage;
        }
        let (weight, bias) = layer();
        let value = hidden.linear(weight, Some(bias));
        value + &advantage - advantage.mean_dim(1, true, Kind::Float)
    }

    /// Q-values of states given as bytes, row by row, for acting.
    pub fn q_values(&self, bytes: &[u8], count: usize) -> Vec<f64> {
        tch::no_grad(|| {
            let q = self.forward(&self.states(bytes, count)).to_device(Device::Cpu).to_kind(Kind::Double);
            let mut values = vec![0.0; q.numel()];
            q.copy_data(&mut values, q.numel());
            values
        })
    }
}

impl Input {
    /// A tensor of `count` states from their bytes: pictures stay bytes until they are on the device.
    pub fn states(&self, bytes: &[u8], count: usize, device: Device) -> Tensor {
        assert_eq!(bytes.len(), count * self.bytes(), "bytes of {count} states");
        let count = count as i64;
        let tensor = match *self {
            Input::Pixels { stack, height, width } => {
                Tensor::from_data_size(bytes, &[count, stack, height, width], Kind::Uint8)
            }
            Input::Vector(size) => Tensor::from_data_size(bytes, &[count, size], Kind::Float),
        };
        tensor.to_device(device)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::architecture::Trunk;
    use rand::{Rng, SeedableRng};
    use rand_chacha::ChaCha8Rng;

    const PIXELS: Input = Input::Pixels { stack: 4, height: 84, width: 84 };

    fn network(input: Input, trunk: Trunk, dueling: bool) -> QNetwork {
        tch::set_num_threads(1);
        let architecture = Architecture { input, trunk, hidden: 32, actions: 5, dueling };
        QNetwork::random(architecture, Device::Cpu, &mut ChaCha8Rng::seed_from_u64(1)).unwrap()
    }

    fn bytes(count: usize) -> Vec<u8> {
        let mut bytes = vec![0; count];
        ChaCha8Rng::seed_from_u64(2).fill_bytes(&mut bytes);
        bytes
    }

    #[test]
    fn each_state_of_a_batch_is_valued_as_if_alone() {
        for (trunk, dueling) in [(Trunk::Nature, false), (Trunk::Small, true)] {
            let network = network(PIXELS, trunk, dueling);
            let states = bytes(3 * PIXELS.bytes());
            let together = network.q_values(&states, 3);
            assert_eq!(together.len(), 15);
            for (index, state) in states.chunks(PIXELS.bytes()).enumerate() {
                let alone = network.q_values(state, 1);
                for (a, b) in alone.iter().zip(&together[index * 5..]) {
                    assert!((a - b).abs() < 1e-5, "{trunk:?}: {a} and {b}");
                }
            }
        }
    }

    #[test]
    fn a_dueling_head_adds_value_to_centred_advantages() {
        let network = network(Input::Vector(4), Trunk::Mlp, true);
        let zeroed = network.duplicate();
        tch::no_grad(|| {
            // Without advantages, every action is worth the state's value.
            let mut leaves = zeroed.parameters().leaves().iter().skip(4);
            let _ = leaves.next().unwrap().shallow_clone().zero_();
            let _ = leaves.next().unwrap().shallow_clone().zero_();
        });
        let state: Vec<u8> = [0.1f32, -0.2, 0.3, 0.4].iter().flat_map(|x| x.to_le_bytes()).collect();
        let q = zeroed.q_values(&state, 1);
        assert!(q.iter().all(|value| (value - q[0]).abs() < 1e-7) && q[0] != 0.0);
        let full = network.q_values(&state, 1);
        let mean = full.iter().sum::<f64>() / 5.0;
        assert!((mean - q[0]).abs() < 1e-6, "advantages are centred");
    }

    #[test]
    fn weights_round_trip_and_damage_changes_nothing() {
        let source = network(PIXELS, Trunk::Small, false);
        let file = source.parameters().to_safetensors();
        let mut other =
            QNetwork::random(*source.architecture(), Device::Cpu, &mut ChaCha8Rng::seed_from_u64(9)).unwrap();
        let state = bytes(PIXELS.bytes());
        let before = other.q_values(&state, 1);
        assert!(other.load(&file[..file.len() - 1]).is_err());
        assert!(other.load(b"nonsense").is_err());
        let vector = network(Input::Vector(4), Trunk::Mlp, false);
        assert!(matches!(other.load(&vector.parameters().to_safetensors()), Err(WeightsError::Mismatch(_))));
        assert_eq!(other.q_values(&state, 1), before);
        other.load(&file).unwrap();
        assert_eq!(other.q_values(&state, 1), source.q_values(&state, 1));
        assert_eq!(other.parameters().to_safetensors(), file);
    }

    #[test]
    fn the_seed_decides_the_weights() {
        let make = |seed| {
            let architecture = *network(Input::Vector(4), Trunk::Mlp, false).architecture();
            let mut rng = ChaCha8Rng::seed_from_u64(seed);
            QNetwork::random(architecture, Device::Cpu, &mut rng).unwrap().parameters().to_safetensors()
        };
        assert_eq!(make(1), make(1));
        assert_ne!(make(1), make(2));
    }
}
