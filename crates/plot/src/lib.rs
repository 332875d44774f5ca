//! Pictures of numbers: a page of panels, each with two axes and some layers, as SVG and as PNG.
//!
//! Everything that Quiver draws is drawn here, so that all pictures look alike: the curves of `quiver plot`, the figures
//! of the paper, the soak test of the benchmarks. A [`Page`] is composed of plain marks in units of the page (`mark`),
//! which is arithmetic; only `canvas` knows the library that paints them, and `element` writes them into an HTML page.
//! Knows nothing of runs, games or files.
//!
//! ```
//! use plot::{Axis, Colour, Layer, Page, Panel};
//!
//! let mut page = Page::new("Replays until the policy is optimal", "mean and standard error");
//! let panel = Panel::new("", Axis::log("cells N"), Axis::log("replays"))
//!     .with(Layer::curve("random", Colour::Orange, vec![(1.0, 4.0, 0.5), (10.0, 350.0, 20.0)]));
//! page.panels.push(panel);
//! assert!(page.svg().unwrap().ends_with("</svg>\n"));
//! ```

#![forbid(unsafe_code)]

mod axis;
mod canvas;
mod clip;
mod colour;
mod element;
mod frame;
mod layer;
mod legend;
mod lettering;
mod mark;
mod number;
mod page;
mod panel;
mod shape;
mod ticks;

pub use axis::Axis;
pub use canvas::PlotError;
pub use colour::Colour;
pub use element::escaped;
pub use layer::Layer;
pub use number::number;
pub use page::Page;
pub use panel::Panel;
