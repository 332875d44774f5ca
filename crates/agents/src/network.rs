//! The Q-network: states in, the head's outputs for each action out.

use rand::Rng;
use tch::{Device, Kind, Tensor};

use settings::choices::Precision;
use settings::networks::{Mismatch, NetworkInput};

use crate::architecture::{Architecture, Head};
use crate::device;
use crate::kernels::{self, Bf16, Pixel};
use crate::memory::{Visible, elements_mut};
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

    /// How states are laid out for this network.
    pub fn state_format(&self) -> StateFormat {
        let Architecture { input, precision, .. } = self.architecture;
        StateFormat { input, precision, device: self.device }
    }

    /// A tensor of `count` states from their bytes.
    pub fn states(&self, bytes: &[u8], count: usize) -> Tensor {
        self.state_format().tensor(bytes, count)
    }

    /// The same network and not a copy of it, for another thread to compute with.
    ///
    /// Neither may be changed as long as both exist.
    pub fn share(&self) -> Self {
        Self { architecture: self.architecture, parameters: self.parameters.share(), device: self.device }
    }

    /// The head's output, f32: one row per state, for each action as many columns as the architecture says, action by action. It has
    /// no graph; training uses [`QNetwork::forward_traced`].
    pub fn forward(&self, states: &Tensor) -> Tensor {
        tch::no_grad(|| self.run(states, None))
    }

    /// Weights and biases, bottom up.
    pub(crate) fn layers(&self) -> impl Iterator<Item = (&Tensor, &Tensor)> {
        self.parameters.leaves().chunks_exact(2).map(|pair| (&pair[0], &pair[1]))
    }

    /// The element type of the matrices below the output layers.
    pub(crate) fn kind(&self) -> Kind {
        match self.architecture.precision {
            Precision::F32 => Kind::Float,
            Precision::Bf16 => Kind::BFloat16,
        }
    }

    /// Joins the head's streams, each of which `stream` computes: the last hidden layer belongs to the head, and with `dueling` each of
    /// the two streams has its own.
    pub(crate) fn head(&self, mut stream: impl FnMut() -> Tensor) -> Tensor {
        let advantage = stream();
        if !self.architecture.head.dueling {
            return advantage;
        }
        dueling(&self.architecture.head, &stream(), &advantage)
    }
}

/// Value plus centred advantages (Wang et al. 2016).
fn dueling(head: &Head, value: &Tensor, advantage: &Tensor) -> Tensor {
    if head.outputs_per_action == 1 {
        return value + advantage - advantage.mean_dim(1, true, Kind::Float);
    }
    let advantage = advantage.view([-1, head.actions, head.outputs_per_action]);
    let centred = &advantage - advantage.mean_dim(1, true, Kind::Float);
    (value.unsqueeze(1) + centred).flatten(1, -1)
}

/// Images are bytes of 0 to 255. Scaling the first weights is the same as scaling the images, and there are far fewer of them.
pub(crate) const PIXEL_SCALE: f64 = 1.0 / 255.0;

/// How a network's states are laid out: images pixel by pixel (channels last), which libtorch convolves fastest.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct StateFormat {
    input: NetworkInput,
    precision: Precision,
    device: Device,
}

impl StateFormat {
    /// A tensor of `count` states from their bytes. On the CPU it has the element type of the network's matrices; to a GPU images
    /// travel as bytes.
    pub fn tensor(&self, bytes: &[u8], count: usize) -> Tensor {
        assert_eq!(bytes.len(), count * self.input.bytes(), "bytes of {count} states");
        let count = count as i64;
        match self.input {
            NetworkInput::Vector(size) => {
                self.upload(&Tensor::from_data_size(bytes, &[count, size], Kind::Float))
            }
            NetworkInput::Image { channels, height, width } => {
                let shape = [count, height, width, channels];
                let pixels = match (self.device, self.precision) {
                    (Device::Cpu, Precision::F32) => interleaved::<f32>(bytes, shape),
                    (Device::Cpu, Precision::Bf16) => interleaved::<Bf16>(bytes, shape),
                    _ => self.upload(&interleaved::<u8>(bytes, shape)),
                };
                pixels.permute([0, 3, 1, 2])
            }
        }
    }

    /// A row of numbers on the network's device, f32.
    pub fn row(&self, numbers: &[f64]) -> Tensor {
        self.upload(&Tensor::from_slice(numbers).to_kind(Kind::Float))
    }

    /// A tensor of this process on the network's device.
    pub fn upload(&self, tensor: &Tensor) -> Tensor {
        device::upload(tensor, self.device)
    }
}

/// Images whose bytes come channel by channel as a tensor that holds them pixel by pixel.
fn interleaved<P: Pixel + Visible>(bytes: &[u8], shape: [i64; 4]) -> Tensor {
    let mut pixels = Tensor::empty(shape, (P::KIND, Device::Cpu));
    let Some(elements) = elements_mut::<P>(&mut pixels) else { return pixels };
    let image: i64 = shape[1..].iter().product();
    for (planes, pixels) in bytes.chunks_exact(image as usize).zip(elements.chunks_exact_mut(image as usize))
    {
        kernels::interleave(planes, shape[3] as usize, pixels);
    }
    pixels
}

#[cfg(test)]
mod tests {
    use super::*;
    use rand::{Rng, SeedableRng};
    use rand_chacha::ChaCha8Rng;
    use settings::networks::{self, MLP, NATURE, Network, SMALL};
    use value::Listed;

    const PIXELS: NetworkInput = NetworkInput::Image { channels: 4, height: 84, width: 84 };

    fn network(input: NetworkInput, network: Network, dueling: bool) -> QNetwork {
        tch::set_num_threads(1);
        let head = Head { actions: 5, outputs_per_action: 1, dueling };
        let architecture = Architecture { input, network, hidden: 32, head, precision: Precision::F32 };
        QNetwork::random(architecture, Device::Cpu, &mut ChaCha8Rng::seed_from_u64(1)).unwrap()
    }

    fn q_values(network: &QNetwork, states: &[u8], count: usize) -> Vec<f64> {
        crate::agent(&settings::Settings::paper()).q_rows(network, states, count)
    }

    fn bytes(count: usize) -> Vec<u8> {
        let mut bytes = vec![0; count];
        ChaCha8Rng::seed_from_u64(2).fill_bytes(&mut bytes);
        bytes
    }

    #[test]
    fn each_state_of_a_batch_is_valued_as_if_alone() {
        for (trunk, dueling) in [(NATURE, false), (SMALL, true)] {
            let network = network(PIXELS, trunk, dueling);
            let states = bytes(3 * PIXELS.bytes());
            let together = q_values(&network, &states, 3);
            assert_eq!(together.len(), 15);
            for (index, state) in states.chunks(PIXELS.bytes()).enumerate() {
                let alone = q_values(&network, state, 1);
                for (a, b) in alone.iter().zip(&together[index * 5..]) {
                    assert!((a - b).abs() < 1e-5, "{trunk:?}: {a} and {b}");
                }
            }
        }
    }

    #[test]
    fn states_pixel_by_pixel_have_the_values_of_states_channel_by_channel() {
        for trunk in [NATURE, SMALL] {
            let network = network(PIXELS, trunk, false);
            let bytes = bytes(2 * PIXELS.bytes());
            let plain = Tensor::from_data_size(&bytes, &[2, 4, 84, 84], Kind::Uint8);
            let states = network.states(&bytes, 2);
            assert_eq!(states.stride(), [84 * 84 * 4, 1, 84 * 4, 4]);
            assert!(states.equal(&plain.to_kind(Kind::Float)));
            let (ours, expected) = (network.forward(&states), network.forward(&plain));
            assert!(ours.allclose(&expected, 1e-4, 1e-5, false));
        }
    }

    #[test]
    fn a_network_in_bf16_has_the_values_of_one_in_f32_within_its_precision() {
        for (input, trunk) in [(PIXELS, NATURE), (PIXELS, SMALL), (NetworkInput::Vector(4), MLP)] {
            let full = network(input, trunk, true);
            let architecture = Architecture { precision: Precision::Bf16, ..*full.architecture() };
            let mut half =
                QNetwork::random(architecture, Device::Cpu, &mut ChaCha8Rng::seed_from_u64(2)).unwrap();
            half.load(&full.parameters().to_safetensors()).unwrap();
            assert_eq!(half.parameters().to_safetensors(), full.parameters().to_safetensors(), "not rounded");
            let state = if trunk == MLP { state() } else { bytes(input.bytes()) };
            let (full, half) = (q_values(&full, &state, 1), q_values(&half, &state, 1));
            let scale = full.iter().map(|q| q.abs()).fold(0.0, f64::max);
            for (full, half) in full.iter().zip(&half) {
                assert!((full - half).abs() < 0.03 * scale, "{trunk}: {full} and {half}");
            }
            assert_ne!(full, half, "{trunk}");
        }
    }

    #[test]
    fn every_network_of_the_list_processes_the_smallest_input_it_accepts() {
        for &listed in networks::NetworkEntry::list() {
            let input = match listed.accepts {
                networks::Accepts::Images { side_min, .. } => {
                    NetworkInput::Image { channels: 3, height: side_min, width: side_min + 1 }
                }
                networks::Accepts::Vectors => NetworkInput::Vector(7),
            };
            let q = q_values(&network(input, listed, true), &vec![0; 2 * input.bytes()], 2);
            assert!(q.len() == 10 && q.iter().all(|value| value.is_finite()), "{listed}");
        }
    }

    /// The network with these parameters set to 0.
    fn without(network: &QNetwork, names: &[&str]) -> QNetwork {
        let changed = network.duplicate();
        let specs = network.architecture().parameters().unwrap();
        let found =
            specs.iter().zip(changed.parameters().leaves()).filter(|(s, _)| names.contains(&&*s.name));
        let zeroed: Vec<_> = tch::no_grad(|| found.map(|(_, leaf)| leaf.shallow_clone().zero_()).collect());
        assert_eq!(zeroed.len(), names.len());
        changed
    }

    /// A vector of four numbers.
    fn state() -> Vec<u8> {
        [0.1f32, -0.2, 0.3, 0.4].iter().flat_map(|x| x.to_le_bytes()).collect()
    }

    #[test]
    fn the_streams_of_a_dueling_head_have_hidden_layers_of_their_own() {
        for (input, trunk) in [(PIXELS, SMALL), (NetworkInput::Vector(4), MLP)] {
            let network = network(input, trunk, true);
            let state = if trunk == MLP { state() } else { bytes(input.bytes()) };
            let advantages = |q: &[f64]| -> Vec<f64> { q.iter().map(|value| value - q[0]).collect() };
            let mean = |q: &[f64]| q.iter().sum::<f64>() / q.len() as f64;
            let same = |a: &[f64], b: &[f64]| a.iter().zip(b).all(|(a, b)| (a - b).abs() < 1e-6);
            let full = q_values(&network, &state, 1);
            // Without the hidden layer of its stream, the value is its bias and the advantages stay.
            let value_off = without(&network, &["value_hidden.weight", "value_hidden.bias"]);
            let q = q_values(&value_off, &state, 1);
            assert!(
                same(&advantages(&q), &advantages(&full)) && (mean(&q) - mean(&full)).abs() > 1e-4,
                "{trunk}"
            );
            let advantage_off = without(&network, &["hidden.weight", "hidden.bias"]);
            let q = q_values(&advantage_off, &state, 1);
            assert!(
                !same(&advantages(&q), &advantages(&full)) && (mean(&q) - mean(&full)).abs() < 1e-6,
                "{trunk}"
            );
        }
    }

    #[test]
    fn a_dueling_head_adds_value_to_centred_advantages() {
        let network = network(NetworkInput::Vector(4), MLP, true);
        // Without advantages, every action is worth the state's value.
        let zeroed = without(&network, &["advantage.weight", "advantage.bias"]);
        let state = state();
        let q = q_values(&zeroed, &state, 1);
        assert!(q.iter().all(|value| (value - q[0]).abs() < 1e-7) && q[0] != 0.0);
        let full = q_values(&network, &state, 1);
        let mean = full.iter().sum::<f64>() / 5.0;
        assert!((mean - q[0]).abs() < 1e-6, "advantages are centred");
    }

    #[test]
    fn a_dueling_head_with_several_outputs_centres_each_of_them() {
        let head = Head { actions: 3, outputs_per_action: 2, dueling: true };
        let value = Tensor::from_slice(&[10.0f32, 20.0]).view([1, 2]);
        let advantage = Tensor::from_slice(&[1.0f32, 0.0, 2.0, 3.0, 3.0, 6.0]).view([1, 6]);
        let output = Vec::<f32>::try_from(dueling(&head, &value, &advantage).view([-1])).unwrap();
        assert_eq!(output, [9.0, 17.0, 10.0, 20.0, 11.0, 23.0]);
    }

    #[test]
    fn weights_round_trip_and_damage_changes_nothing() {
        let source = network(PIXELS, SMALL, false);
        let file = source.parameters().to_safetensors();
        let mut other =
            QNetwork::random(*source.architecture(), Device::Cpu, &mut ChaCha8Rng::seed_from_u64(9)).unwrap();
        let state = bytes(PIXELS.bytes());
        let before = q_values(&other, &state, 1);
        assert!(other.load(&file[..file.len() - 1]).is_err());
        assert!(other.load(b"nonsense").is_err());
        let vector = network(NetworkInput::Vector(4), MLP, false);
        assert!(matches!(other.load(&vector.parameters().to_safetensors()), Err(WeightsError::Mismatch(_))));
        assert_eq!(q_values(&other, &state, 1), before);
        other.load(&file).unwrap();
        assert_eq!(q_values(&other, &state, 1), q_values(&source, &state, 1));
        assert_eq!(other.parameters().to_safetensors(), file);
    }

    #[test]
    fn weights_of_another_network_are_refused_by_the_names_of_their_tensors() {
        let (mut plain, mut dueling) =
            (network(NetworkInput::Vector(4), MLP, false), network(NetworkInput::Vector(4), MLP, true));
        let refused = |network: &mut QNetwork, file: &[u8]| network.load(file).unwrap_err().to_string();
        let file = plain.parameters().to_safetensors();
        let names = "value_hidden.weight, value_hidden.bias, value.weight, value.bias";
        let error = refused(&mut dueling, &file);
        assert_eq!(error, format!("weights are for another network: missing {names}"));
        let error = refused(&mut plain, &dueling.parameters().to_safetensors());
        assert!(error.starts_with("weights are for another network: unexpected value"), "{error}");

        // Before the two streams were separated, a dueling network had one hidden layer for both.
        let mut specs = dueling.architecture().parameters().unwrap();
        specs.retain(|spec| !spec.name.starts_with("value_hidden"));
        let former = Parameters::of_zeros(specs, Device::Cpu).to_safetensors();
        let error = refused(&mut dueling, &former);
        assert!(error.contains("missing value_hidden.weight, value_hidden.bias: "), "{error}");
        assert!(error.contains("a dueling network of an older quiver"), "{error}");
    }

    #[test]
    fn the_seed_decides_the_weights() {
        let make = |seed| {
            let architecture = *network(NetworkInput::Vector(4), MLP, false).architecture();
            let mut rng = ChaCha8Rng::seed_from_u64(seed);
            QNetwork::random(architecture, Device::Cpu, &mut rng).unwrap().parameters().to_safetensors()
        };
        assert_eq!(make(1), make(1));
        assert_ne!(make(1), make(2));
    }
}
