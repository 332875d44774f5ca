// Saves and restores the emulator's exact state.
//
// ALE's own state omits parts of the video chip (TIA): the two frame buffers, of which a game may redraw only some lines;
// whether the last frame was partial; and the masks with which the next line is drawn. When restored into another instance
// without them, qbert, tetris, tic_tac_toe_3d and yars_revenge drew different frames, and the first two continued with
// different memory contents. A chip in pitfall2's cartridge loses digits of its clock, and the rules of seven games omit
// some of their own fields. All these members are private, so this file is compiled with -fno-access-control.

#include <cstring>
#include <stdexcept>

#include "ale/emucore/CartDPC.hxx"
#include "ale/emucore/Deserializer.hxx"
#include "ale/emucore/Serializer.hxx"
#include "ale/emucore/System.hxx"
#include "ale/emucore/TIA.hxx"
#include "ale/games/supported/Atlantis2.hpp"
#include "ale/games/supported/ChopperCommand.hpp"
#include "ale/games/supported/DemonAttack.hpp"
#include "ale/games/supported/Hangman.hpp"
#include "ale/games/supported/MiniatureGolf.hpp"
#include "ale/games/supported/VideoCheckers.hpp"
#include "ale/games/supported/VideoCube.hpp"
#include "quiver-ale/src/emulator.h"

namespace quiver {
namespace {

using ale::stella::CartridgeDPC;
using ale::stella::Deserializer;
using ale::stella::Serializer;
using ale::stella::TIA;

constexpr size_t BUFFER_BYTES = 160 * 300;

TIA& video(const ale::ALEInterface& ale) {
  return dynamic_cast<TIA&>(ale.theOSystem->console().mediaSource());
}

// A mask pointer is an offset into one of the TIA's static tables.
struct Table {
  const uint8_t* start;
  size_t bytes;
};

template <typename T>
Table table(const T& array) {
  return {reinterpret_cast<const uint8_t*>(&array), sizeof(T)};
}

const Table* tables() {
  static const Table all[] = {table(TIA::ourBallMaskTable), table(TIA::ourMissleMaskTable),
                              table(TIA::ourPlayerMaskTable), table(TIA::ourPlayfieldTable),
                              table(TIA::ourDisabledMaskTable)};
  return all;
}
constexpr int TABLES = 5;

void put_mask(Serializer& out, const void* mask) {
  const uint8_t* address = static_cast<const uint8_t*>(mask);
  for (int i = 0; i < TABLES; ++i) {
    const Table& t = tables()[i];
    if (address >= t.start && address < t.start + t.bytes) {
      out.putInt(i);
      out.putInt(static_cast<int>(address - t.start));
      return;
    }
  }
  throw std::runtime_error("a mask of the video chip is outside of every table");
}

template <typename T>
void get_mask(Deserializer& in, const T*& mask) {
  int i = in.getInt();
  int offset = in.getInt();
  if (i < 0 || i >= TABLES || offset < 0 || static_cast<size_t>(offset) >= tables()[i].bytes)
    throw std::runtime_error("a mask of the video chip is out of range");
  mask = reinterpret_cast<const T*>(tables()[i].start + offset);
}

void put_buffer(Serializer& out, const uint8_t* buffer) {
  out.putString(std::string(reinterpret_cast<const char*>(buffer), BUFFER_BYTES));
}

void get_buffer(Deserializer& in, uint8_t* buffer) {
  std::string bytes = in.getString();
  if (bytes.size() != BUFFER_BYTES) throw std::runtime_error("a frame buffer has the wrong length");
  std::memcpy(buffer, bytes.data(), BUFFER_BYTES);
}

void put_video(Serializer& out, const TIA& tia) {
  out.putBool(tia.myPartialFrameFlag);
  out.putBool(tia.myFrameGreyed);
  out.putInt(tia.myFrameCounter);
  out.putInt(static_cast<int>(tia.myFramePointer - tia.myCurrentFrameBuffer));
  put_mask(out, tia.myCurrentBLMask);
  put_mask(out, tia.myCurrentM0Mask);
  put_mask(out, tia.myCurrentM1Mask);
  put_mask(out, tia.myCurrentP0Mask);
  put_mask(out, tia.myCurrentP1Mask);
  put_mask(out, tia.myCurrentPFMask);
  put_buffer(out, tia.myCurrentFrameBuffer);
  put_buffer(out, tia.myPreviousFrameBuffer);
}

void get_video(Deserializer& in, TIA& tia) {
  tia.myPartialFrameFlag = in.getBool();
  tia.myFrameGreyed = in.getBool();
  tia.myFrameCounter = in.getInt();
  int pointer = in.getInt();
  if (pointer < 0 || static_cast<size_t>(pointer) > BUFFER_BYTES)
    throw std::runtime_error("the frame pointer is out of range");
  tia.myFramePointer = tia.myCurrentFrameBuffer + pointer;
  get_mask(in, tia.myCurrentBLMask);
  get_mask(in, tia.myCurrentM0Mask);
  get_mask(in, tia.myCurrentM1Mask);
  get_mask(in, tia.myCurrentP0Mask);
  get_mask(in, tia.myCurrentP1Mask);
  get_mask(in, tia.myCurrentPFMask);
  get_buffer(in, tia.myCurrentFrameBuffer);
  get_buffer(in, tia.myPreviousFrameBuffer);
}

// The clock of the sound chip in some cartridges, or null. ALE saves it rounded to eight digits.
double* cartridge_clock(const ale::ALEInterface& ale) {
  ale::stella::System& system = ale.theOSystem->console().system();
  for (uint32_t i = 0; i < system.myNumberOfDevices; ++i)
    if (auto* cartridge = dynamic_cast<CartridgeDPC*>(system.myDevices[i])) return &cartridge->myFractionalClocks;
  return nullptr;
}

void put_clock(Serializer& out, const double* clock) {
  if (clock) out.putString(std::string(reinterpret_cast<const char*>(clock), sizeof(double)));
}

void get_clock(Deserializer& in, double* clock) {
  if (!clock) return;
  std::string bytes = in.getString();
  if (bytes.size() != sizeof(double)) throw std::runtime_error("the cartridge's clock has the wrong length");
  std::memcpy(clock, bytes.data(), sizeof(double));
}

// Calls `visit` with each field that a game's own saveState omits (or, in MiniatureGolf, writes as a bool and reads as an
// int).
template <typename Visit>
void omitted_fields(ale::RomSettings& rules, Visit visit) {
  if (auto* game = dynamic_cast<ale::Atlantis2Settings*>(&rules)) visit(game->m_lives);
  if (auto* game = dynamic_cast<ale::ChopperCommandSettings*>(&rules)) visit(game->m_is_started);
  if (auto* game = dynamic_cast<ale::DemonAttackSettings*>(&rules)) visit(game->m_level_change);
  if (auto* game = dynamic_cast<ale::HangmanSettings*>(&rules))
    for (int& field : game->m_timerArray) visit(field);
  if (auto* game = dynamic_cast<ale::VideoCubeSettings*>(&rules))
    for (int& field : game->m_timerArray) visit(field);
  if (auto* game = dynamic_cast<ale::VideoCheckersSettings*>(&rules)) visit(game->m_reverse_checkers);
  if (auto* game = dynamic_cast<ale::MiniatureGolfSettings*>(&rules)) {
    visit(game->m_levelNumber);
    visit(game->m_levelPar);
    visit(game->m_hits);
    visit(game->m_leftStatus);
    visit(game->m_hitsAtStartOfLevel);
  }
}

}  // namespace

std::unique_ptr<std::string> Emulator::save_state() const {
  Serializer out;
  out.putString(ale.environment->cloneState(true).serialize());
  put_video(out, video(ale));
  put_clock(out, cartridge_clock(ale));
  omitted_fields(*ale.romSettings, [&out](auto& field) { out.putInt(static_cast<int>(field)); });
  return std::make_unique<std::string>(out.get_str());
}

void Emulator::restore_state(rust::Slice<const uint8_t> bytes) {
  try {
    Deserializer in(std::string(reinterpret_cast<const char*>(bytes.data()), bytes.size()));
    ale.restoreState(ale::ALEState(in.getString()));
    get_video(in, video(ale));
    get_clock(in, cartridge_clock(ale));
    omitted_fields(*ale.romSettings, [&in](auto& field) {
      field = static_cast<std::decay_t<decltype(field)>>(in.getInt());
    });
  } catch (const char* message) {  // ALE's Deserializer throws this type, which cxx does not catch.
    throw std::runtime_error(message);
  }
  // ALE refreshes its copy of the screen only when it acts.
  const ale::ALEScreen& screen = ale.getScreen();
  std::memcpy(screen.getArray(), video(ale).currentFrameBuffer(), screen.arraySize());
}

}  // namespace quiver
