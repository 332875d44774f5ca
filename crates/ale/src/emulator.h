// One emulator with one game loaded, with an interface of types that cxx supports.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "ale/ale_interface.hpp"
#include "rust/cxx.h"

namespace quiver {

class Emulator {
 public:
  Emulator(const std::string& rom, int32_t seed);

  int32_t act(int32_t action) { return ale.act(static_cast<ale::Action>(action)); }
  bool game_over() const { return ale.game_over(false); }
  int32_t lives() const { return ale.romSettings->lives(); }
  void reset() { ale.reset_game(); }
  int32_t frame_number() const { return ale.getFrameNumber(); }
  rust::Vec<int32_t> legal_actions() const;
  rust::Vec<int32_t> minimal_actions() const;

  size_t width() const { return ale.getScreen().width(); }
  size_t height() const { return ale.getScreen().height(); }
  // The screen as palette indices, row by row; valid until the next call that changes the emulator.
  rust::Slice<const uint8_t> screen() const;
  // Colour (0xRRGGBB) and luminance of a palette index.
  uint32_t colour(uint8_t index) const { return ale.theOSystem->colourPalette().getRGB(index); }
  uint8_t luminance(uint8_t index) const;

  // Saves and restores the whole state. `restore_state` throws on data that `save_state` has not written.
  std::unique_ptr<std::string> save_state() const;
  void restore_state(rust::Slice<const uint8_t> bytes);

 private:
  ale::ALEInterface ale;
};

// Silences ALE's messages. The level is an unsynchronised global: call before the first instance.
void quiet();

// The name of the game in a ROM image, by its MD5; "" if ALE does not know it.
rust::String identify(rust::Slice<const uint8_t> image);

// `identify` must know the file: ALE ends the process on any other file.
std::unique_ptr<Emulator> load(rust::Str rom, int32_t seed);

}  // namespace quiver
