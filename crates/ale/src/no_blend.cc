// Replaces ALE's phosphor_blend.cpp, which averages the colours of consecutive frames on request.
//
// Quiver never requests it, but ALE's constructor fills half a megabyte of tables for it, which took most of the time to
// load a game.

#include "ale/environment/phosphor_blend.hpp"

#include <stdexcept>

namespace ale {

PhosphorBlend::PhosphorBlend(stella::OSystem* osystem) : m_osystem(osystem) {}

void PhosphorBlend::process(ALEScreen&) { throw std::logic_error("this build of ALE cannot average colours"); }

}  // namespace ale
