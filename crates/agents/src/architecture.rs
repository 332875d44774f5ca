//! The shape of a network: trunk, head, and the list of parameters that follows.

use envs::Spec;
use serde::{Deserialize, Serialize};
use settings::Settings;
use settings::choices::Precision;
use settings::networks::{Mismatch, Network, NetworkInput};

use crate::agent::Agent;

/// Everything needed to build a network.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Architecture {
    /// What the network sees.
    pub input: NetworkInput,
    /// The layers below the head.
    pub network: Network,
    /// Width of the hidden layer or layers.
    pub hidden: i64,
    /// The output layers.
    pub head: Head,
    /// What the matrices below the output layers are computed in.
    #[serde(default = "f32")]
    pub precision: Precision,
}

/// What a file of an older version means.
fn f32() -> Precision {
    Precision::F32
}

/// The output layers: as many numbers for each action as the agent asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Head {
    /// Actions.
    pub actions: i64,
    /// Outputs for each action.
    pub outputs_per_action: i64,
    /// Whether the last hidden layer and the head are split into value and advantage (Wang et al. 2016).
    pub dueling: bool,
}

/// A named parameter tensor: its shape and the number of inputs that feed each of its outputs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ParameterSpec {
    /// Name in a weights file.
    pub name: String,
    /// Shape.
    pub shape: Vec<i64>,
    /// Inputs per output, which sets the scale of the first values.
    pub fan_in: i64,
    /// Whether it belongs to an output layer, which is computed in f32 whatever the precision.
    pub is_output: bool,
}

impl Architecture {
    /// The network of these settings for an environment: its trunk by name, its head by the agent and by `dueling`.
    pub fn new(settings: &Settings, agent: &dyn Agent, spec: &Spec) -> Result<Self, Mismatch> {
        let input = NetworkInput::of(&spec.observation, settings.frame_stack)?;
        settings.network.check(input)?;
        let head = Head {
            actions: spec.actions.len() as i64,
            outputs_per_action: agent.outputs_per_action(),
            dueling: settings.dueling,
        };
        let hidden = settings.hidden_units as i64;
        Ok(Self { input, network: settings.network, hidden, head, precision: settings.precision })
    }

    /// The parameters in order: weight and bias of each layer, bottom up.
    pub fn parameters(&self) -> Result<Vec<ParameterSpec>, Mismatch> {
        self.network.check(self.input)?;
        let mut specs = Vec::new();
        let mut layer = |name: String, weight: Vec<i64>, is_output: bool| {
            let (outputs, fan_in) = (weight[0], weight[1..].iter().product());
            specs.push(ParameterSpec { name: format!("{name}.weight"), shape: weight, fan_in, is_output });
            specs.push(ParameterSpec {
                name: format!("{name}.bias"),
                shape: vec![outputs],
                fan_in,
                is_output,
            });
        };
        let mut features = match self.input {
            NetworkInput::Vector(size) => size,
            NetworkInput::Image { mut channels, mut height, mut width } => {
                for (index, convolution) in self.network.convolutions.iter().enumerate() {
                    let (kernel, stride) = (convolution.kernel, convolution.stride);
                    layer(
                        format!("conv{index}"),
                        vec![convolution.channels, channels, kernel, kernel],
                        false,
                    );
                    channels = convolution.channels;
                    height = (height - kernel) / stride + 1;
                    width = (width - kernel) / stride + 1;
                }
                channels * height * width
            }
        };
        for index in 0..self.network.hidden_layers - 1 {
            layer(format!("hidden{index}"), vec![self.hidden, features], false);
            features = self.hidden;
        }
        let Head { actions, outputs_per_action, dueling } = self.head;
        // Wang et al. split after the convolutions. Of several hidden layers the two streams share all but the last.
        let streams = [
            ("hidden", "advantage", actions * outputs_per_action),
            ("value_hidden", "value", outputs_per_action),
        ];
        for (hidden, output, outputs) in streams.into_iter().take(if dueling { 2 } else { 1 }) {
            layer(hidden.into(), vec![self.hidden, features], false);
            layer(output.into(), vec![outputs, self.hidden], true);
        }
        Ok(specs)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use settings::networks::{MLP, NATURE, SMALL};

    fn atari(network: Network, hidden: i64) -> Architecture {
        let input = NetworkInput::Image { channels: 4, height: 84, width: 84 };
        Architecture {
            input,
            network,
            hidden,
            head: Head { actions: 6, outputs_per_action: 1, dueling: false },
            precision: Precision::F32,
        }
    }

    fn count(architecture: &Architecture) -> i64 {
        architecture.parameters().unwrap().iter().map(|spec| spec.shape.iter().product::<i64>()).sum()
    }

    #[test]
    fn the_published_networks_have_their_published_sizes() {
        // 2015: 8,224 + 32,832 + 36,928 + 1,606,144 + 3,078; 2013: 4,112 + 8,224 + 663,808 + 1,542.
        assert_eq!(count(&atari(NATURE, 512)), 1_687_206);
        assert_eq!(count(&atari(SMALL, 256)), 677_686);
    }

    #[test]
    fn a_dueling_head_adds_a_hidden_layer_and_an_output_of_the_value() {
        let added = |input, network, hidden, outputs_per_action| {
            let head = |dueling| Head { actions: 6, outputs_per_action, dueling };
            let of = |dueling| {
                count(&Architecture {
                    head: head(dueling),
                    input,
                    network,
                    hidden,
                    precision: Precision::F32,
                })
            };
            of(true) - of(false)
        };
        let pixels = NetworkInput::Image { channels: 4, height: 84, width: 84 };
        // The value's hidden layer and its output: 1,606,144 + 513.
        assert_eq!(added(pixels, NATURE, 512, 1), 1_606_657);
        // Of the two hidden layers only the last is doubled: 64·64 + 64, and 3 outputs of 64 + 1.
        assert_eq!(added(NetworkInput::Vector(4), MLP, 64, 3), 4_160 + 195);
    }

    #[test]
    fn a_network_refuses_an_input_it_can_not_process() {
        let vector = Architecture { input: NetworkInput::Vector(4), ..atari(NATURE, 512) };
        assert!(vector.parameters().is_err());
        let tiny = NetworkInput::Image { channels: 4, height: 20, width: 84 };
        assert!(Architecture { input: tiny, ..atari(SMALL, 256) }.parameters().is_err());
        assert!(atari(MLP, 64).parameters().is_err());
    }
}
