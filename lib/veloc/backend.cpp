// veloc-backend CONFIG [OPTIONS] - VeloC's program of that name, for scripts that start it.
//
// It checks the configuration and ends. The background work of VeloC's is done by holdfast node, which the ranks start
// themselves and which ends with them; nothing is left to be killed.
#include <cstring>
#include <iostream>

#include "src/config.hpp"

static const char usage[] =
	"usage: veloc-backend CONFIG [OPTIONS]\n\n"
	"Checks a configuration of VeloC: exit code 0 if it is right, 2 if not. Options of VeloC's own\n"
	"veloc-backend, such as --disable-ec, have no effect. Programs that link libveloc-client need no\n"
	"backend: their ranks start holdfast node, which ends with them.\n";

int main(int argc, char **argv) {
	std::string file;
	for (int i = 1; i < argc; i++) {
		if (strcmp(argv[i], "--help") == 0 || strcmp(argv[i], "-h") == 0) {
			std::cout << usage;
			return 0;
		}
		if (argv[i][0] != '-') {
			file = argv[i];
		}
	}
	try {
		veloc::config c = veloc::read_config(file);
		for (const std::string &note : c.notes) {
			std::cerr << "veloc-backend: " << note << "\n";
		}
		return 0;
	} catch (const std::exception &e) {
		std::cerr << "veloc-backend: " << e.what() << "\n";
		return 2;
	}
}
