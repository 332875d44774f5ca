//! Forward and backward passes of the layers below the output layers, without autograd.
//!
//! The gradient of a layer's weights is needed only at the end, that of its input at once, by the layer below. Autograd computes
//! both in turn on one thread; here a [`Helper`] computes the weights' while the training thread goes down the layers. Output
//! layers and loss are small and stay with autograd.

use tch::{Kind, Tensor};

use crate::helper::{Helper, Job};
use crate::network::QNetwork;
use crate::ops;

/// What a forward pass keeps for the backward pass.
#[derive(Debug, Default)]
pub struct Trace {
    convolutions: Vec<Convolution>,
    /// Hidden layers that all streams share, bottom up.
    hidden: Vec<Linear>,
    /// The last hidden layer of each stream.
    streams: Vec<Linear>,
}

#[derive(Debug)]
struct Convolution {
    input: Tensor,
    /// After the rectifier.
    output: Tensor,
    /// As it was multiplied: the first is scaled.
    weight: Tensor,
    stride: i64,
}

#[derive(Debug)]
struct Linear {
    input: Tensor,
    /// After the rectifier; for a stream before it, and a leaf of the graph above.
    output: Tensor,
    weight: Tensor,
}

impl QNetwork {
    /// The same as [`QNetwork::forward`], with a graph of the output layers only and a trace of the layers below.
    pub fn forward_traced(&self, states: &Tensor) -> (Tensor, Trace) {
        let mut trace = Trace::default();
        let output = self.run(states, Some(&mut trace));
        (output, trace)
    }

    /// A forward pass. Without a trace, each layer's output is freed as soon as the next one has read it.
    pub(crate) fn run(&self, states: &Tensor, mut trace: Option<&mut Trace>) -> Tensor {
        let mut layers = self.layers();
        let mut layer = || layers.next().expect("a layer");
        let mut features = tch::no_grad(|| {
            let mut x = states.to_kind(self.kind());
            for (index, convolution) in self.architecture().network.convolutions.iter().enumerate() {
                let (weight, bias) = layer();
                let weight =
                    if index == 0 { weight * crate::network::PIXEL_SCALE } else { weight.shallow_clone() };
                let stride = convolution.stride;
                let output = x.conv2d(&weight, Some(bias), [stride, stride], [0, 0], [1, 1], 1).relu_();
                let input = std::mem::replace(&mut x, output.shallow_clone());
                if let Some(trace) = &mut trace {
                    trace.convolutions.push(Convolution { input, output, weight, stride });
                }
            }
            x.flatten(1, -1)
        });
        for _ in 1..self.architecture().network.hidden_layers {
            let (weight, bias) = layer();
            let output = tch::no_grad(|| ops::linear(&features, weight, bias).relu_());
            let input = std::mem::replace(&mut features, output.shallow_clone());
            if let Some(trace) = &mut trace {
                trace.hidden.push(Linear { input, output, weight: weight.shallow_clone() });
            }
        }
        self.head(|| {
            let (weight, bias) = layer();
            let mut hidden = tch::no_grad(|| ops::linear(&features, weight, bias));
            if let Some(trace) = &mut trace {
                hidden = hidden.set_requires_grad(true);
                let (input, output, weight) =
                    (features.shallow_clone(), hidden.shallow_clone(), weight.shallow_clone());
                trace.streams.push(Linear { input, output, weight });
            }
            let (weight, bias) = layer();
            hidden.relu().to_kind(Kind::Float).linear(weight, Some(bias))
        })
    }

    /// The gradient of `loss`, one tensor per leaf of the parameters; `trace` is of the forward pass that it was computed from.
    pub fn gradient(&self, loss: &Tensor, trace: &Trace, helper: Option<&Helper>) -> Vec<Tensor> {
        let mut jobs =
            Jobs { helper, gradients: self.parameters().leaves().iter().map(|_| None).collect(), count: 0 };
        let below = 2 * (trace.convolutions.len() + trace.hidden.len());
        // By stream: hidden weight and bias, output weight and bias.
        let outputs = |stream: usize| [below + 4 * stream + 2, below + 4 * stream + 3];
        let mut leaves: Vec<&Tensor> = trace.streams.iter().map(|stream| &stream.output).collect();
        let outputs: Vec<usize> = (0..trace.streams.len()).flat_map(outputs).collect();
        leaves.extend(outputs.iter().map(|&leaf| &self.parameters().leaves()[leaf]));
        let mut above = Tensor::run_backward(&[loss], &leaves, false, false);
        for (leaf, gradient) in outputs.into_iter().zip(above.split_off(trace.streams.len())) {
            jobs.gradients[leaf] = Some(gradient);
        }
        tch::no_grad(|| {
            let mut sum: Option<Tensor> = None;
            for (index, (stream, gradient)) in trace.streams.iter().zip(above).enumerate() {
                jobs.linear(below + 4 * index, stream, &gradient);
                if below > 0 {
                    let gradient = ops::linear_input_gradient(&gradient, &stream.weight);
                    sum = Some(match sum {
                        Some(sum) => sum + gradient,
                        None => gradient,
                    });
                }
            }
            if let Some(gradient) = sum {
                trace.backward(&mut jobs, gradient);
            }
        });
        jobs.finish()
    }
}

impl Trace {
    /// Continues below the streams, with the gradient of their common input.
    fn backward(&self, jobs: &mut Jobs<'_>, mut gradient: Tensor) {
        let convolutions = self.convolutions.len();
        for (index, layer) in self.hidden.iter().enumerate().rev() {
            gradient = layer.output.threshold_backward(&gradient, 0);
            jobs.linear(2 * (convolutions + index), layer, &gradient);
            if index > 0 || convolutions > 0 {
                gradient = ops::linear_input_gradient(&gradient, &layer.weight);
            }
        }
        if let Some(top) = self.convolutions.last() {
            // From rows to images that lie pixel by pixel.
            gradient = gradient.view_as(&top.output).permute([0, 2, 3, 1]).contiguous().permute([0, 3, 1, 2]);
        }
        for (index, layer) in self.convolutions.iter().enumerate().rev() {
            gradient = layer.output.threshold_backward(&gradient, 0);
            jobs.convolution(index, layer, &gradient);
            if index > 0 {
                gradient =
                    ops::convolution_input_gradient(&gradient, &layer.input, &layer.weight, layer.stride);
            }
        }
    }
}

/// The gradients of the weights, which the helper computes if there is one.
struct Jobs<'a> {
    helper: Option<&'a Helper>,
    /// By leaf.
    gradients: Vec<Option<Tensor>>,
    count: usize,
}

impl Jobs<'_> {
    /// `leaf` is the number of the weight's leaf; that of the bias is the next.
    fn add(&mut self, leaf: usize, job: Job) {
        if let Some(helper) = self.helper {
            helper.add(leaf, job);
            self.count += 1;
        } else {
            self.set(leaf, job());
        }
    }

    fn set(&mut self, leaf: usize, gradients: [Tensor; 2]) {
        for (offset, gradient) in gradients.into_iter().enumerate() {
            self.gradients[leaf + offset] = Some(gradient);
        }
    }

    fn linear(&mut self, leaf: usize, layer: &Linear, gradient: &Tensor) {
        let [gradient, input, weight] = [gradient, &layer.input, &layer.weight].map(Tensor::shallow_clone);
        self.add(leaf, Box::new(move || ops::linear_weight_gradient(&gradient, &input, &weight)));
    }

    fn convolution(&mut self, index: usize, layer: &Convolution, gradient: &Tensor) {
        let [gradient, input, weight] = [gradient, &layer.input, &layer.weight].map(Tensor::shallow_clone);
        let stride = layer.stride;
        let job = move || {
            let [weight, bias] = ops::convolution_weight_gradient(&gradient, &input, &weight, stride);
            [if index == 0 { weight * crate::network::PIXEL_SCALE } else { weight }, bias]
        };
        if index == 0 {
            // The lowest layer has no input whose gradient is needed: this is all that is left to do.
            self.set(0, job());
        } else {
            self.add(2 * index, Box::new(job));
        }
    }

    fn finish(mut self) -> Vec<Tensor> {
        if let Some(helper) = self.helper {
            for (leaf, gradients) in helper.finish(self.count) {
                self.set(leaf, gradients);
            }
        }
        self.gradients.into_iter().map(|gradient| gradient.expect("of every leaf")).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::architecture::{Architecture, Head};
    use crate::read::numbers;
    use rand::{Rng, SeedableRng};
    use rand_chacha::ChaCha8Rng;
    use settings::choices::Precision;
    use settings::networks::{MINATAR, MLP, NATURE, Network, NetworkInput, SMALL};
    use tch::Device;

    fn network(input: NetworkInput, network: Network, dueling: bool) -> QNetwork {
        tch::set_num_threads(1);
        let head = Head { actions: 3, outputs_per_action: 1, dueling };
        let architecture = Architecture { input, network, hidden: 256, head, precision: Precision::F32 };
        QNetwork::random(architecture, Device::Cpu, &mut ChaCha8Rng::seed_from_u64(1)).unwrap()
    }

    /// The network in autograd's own operations.
    fn by_autograd(network: &QNetwork, states: &Tensor) -> Tensor {
        let mut layers = network.layers();
        let mut layer = || layers.next().unwrap();
        let mut x = states.to_kind(Kind::Float);
        for (index, convolution) in network.architecture().network.convolutions.iter().enumerate() {
            let (weight, bias) = layer();
            let stride = [convolution.stride, convolution.stride];
            let scale = if index == 0 { crate::network::PIXEL_SCALE } else { 1.0 };
            x = (x * scale).conv2d(weight, Some(bias), stride, [0, 0], [1, 1], 1).relu();
        }
        let mut x = x.flatten(1, -1);
        for _ in 1..network.architecture().network.hidden_layers {
            let (weight, bias) = layer();
            x = x.linear(weight, Some(bias)).relu();
        }
        network.head(|| {
            let (weight, bias) = layer();
            let hidden = x.linear(weight, Some(bias)).relu();
            let (weight, bias) = layer();
            hidden.linear(weight, Some(bias))
        })
    }

    #[test]
    fn values_and_gradients_are_those_of_autograd() {
        let image = |channels, side| NetworkInput::Image { channels, height: side, width: side };
        let helper = Helper::start().unwrap();
        for (input, trunk) in [
            (image(4, 84), NATURE),
            (image(4, 84), SMALL),
            (image(6, 10), MINATAR),
            (NetworkInput::Vector(4), MLP),
        ] {
            for dueling in [false, true] {
                let network = network(input, trunk, dueling);
                // Enough rows that the hidden layer of Nature is multiplied by oneDNN.
                let mut bytes = vec![0; 8 * input.bytes()];
                ChaCha8Rng::seed_from_u64(2).fill_bytes(&mut bytes);
                if let NetworkInput::Vector(size) = input {
                    let numbers = (0..8 * size).flat_map(|i| ((i as f32) * 0.7).sin().to_le_bytes());
                    bytes = numbers.collect();
                }
                let states = network.states(&bytes, 8);
                let loss = |q: &Tensor| (q - 0.3).square().sum(Kind::Float);
                let expected = by_autograd(&network, &states);
                let leaves = network.parameters().leaves();
                let gradient = Tensor::run_backward(&[loss(&expected)], leaves, false, false);
                for helper in [None, Some(&helper)] {
                    let (q, trace) = network.forward_traced(&states);
                    assert!(q.allclose(&expected, 1e-4, 1e-5, false), "{trunk}");
                    let ours = network.gradient(&loss(&q), &trace, helper);
                    for (index, (ours, expected)) in ours.iter().zip(&gradient).enumerate() {
                        assert_eq!(ours.size(), expected.size());
                        let scale = numbers(&expected.abs().max())[0];
                        let error = numbers(&(ours - expected).abs().max())[0];
                        assert!(
                            error <= 1e-4 * scale && scale > 0.0,
                            "{trunk} {dueling}, leaf {index}: {error}"
                        );
                    }
                }
            }
        }
    }
}
