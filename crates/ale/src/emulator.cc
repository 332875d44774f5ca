#include "quiver-ale/src/emulator.h"

#include <stdexcept>

#include "ale/emucore/MD5.hxx"

namespace quiver {
namespace {

rust::Vec<int32_t> numbers(const ale::ActionVect& actions) {
  rust::Vec<int32_t> out;
  for (ale::Action action : actions) out.push_back(static_cast<int32_t>(action));
  return out;
}

}  // namespace

Emulator::Emulator(const std::string& rom, int32_t seed) {
  ale.setInt("random_seed", seed);
  // Rust implements sticky actions, with a random generator that can be saved.
  ale.setFloat("repeat_action_probability", 0.0f);
  ale.loadROM(rom);
}

rust::Vec<int32_t> Emulator::legal_actions() const { return numbers(ale.getLegalActionSet()); }

rust::Vec<int32_t> Emulator::minimal_actions() const { return numbers(ale.getMinimalActionSet()); }

rust::Slice<const uint8_t> Emulator::screen() const {
  const ale::ALEScreen& screen = ale.getScreen();
  return {screen.getArray(), screen.arraySize()};
}

uint8_t Emulator::luminance(uint8_t index) const {
  // Colours have even indices, and the gray value of each follows it. Index 255 is the last entry.
  if (index == 255) return 0;
  return static_cast<uint8_t>(ale.theOSystem->colourPalette().getRGB(index + 1));
}

void quiet() { ale::Logger::setMode(ale::Logger::Error); }

rust::String identify(rust::Slice<const uint8_t> image) {
  std::string md5 = ale::stella::MD5(image.data(), static_cast<uint32_t>(image.size()));
  // With an empty path ALE can match only the MD5.
  std::unique_ptr<ale::RomSettings> game(ale::buildRomRLWrapper(fs::path(), md5));
  return game ? rust::String(game->rom()) : rust::String();
}

std::unique_ptr<Emulator> load(rust::Str rom, int32_t seed) {
  return std::make_unique<Emulator>(std::string(rom), seed);
}

}  // namespace quiver
