# Makes from names.txt what WHAT names:
#
#   names    the number of each name, HF_NAME, and the list HF_NAMES
#   stubs    in assembly: a stub of each name, which jumps through its place in hf_slots, and the table of own functions
#   submits  in C: hf_NAME of each call that submits work
#
# usage: awk -v WHAT=names|stubs|submits -f stubs.awk names.txt
/^#/ || NF == 0 { next }
{
	names[n++] = $1
	kind[$1] = $2
	args[$1] = $3
	stream[$1] = $4
	pointers[$1] = $5
}
END {
	if (WHAT == "names") {
		print "/* Made by stubs.awk. */\nenum {"
		for (i = 0; i < n; i++) print "\tHF_" names[i] ","
		print "\tHF_COUNT\n};\n#define HF_NAMES \\"
		for (i = 0; i < n; i++) print "\t\"" names[i] "\"" (i < n - 1 ? ", \\" : "")
	} else if (WHAT == "stubs") {
		stubs()
	} else {
		submits()
	}
}

# A place holds the address of a few instructions that put the name's number in r11 and have hf_bind fill all places,
# until the first call has done so.
function stubs(i) {
	print "\t.text"
	for (i = 0; i < n; i++) {
		print "\t.globl " names[i] "\n\t.type " names[i] ", @function\n" names[i] ":"
		print "\tendbr64\n\tjmp *hf_slots+" 8 * i "(%rip)\n\t.size " names[i] ", .-" names[i]
		print ".Lfirst" i ":\n\tendbr64\n\tmov $" i ", %r11d\n\tjmp hf_first"
	}
	print "\t.section .data.rel, \"aw\"\n\t.balign 8\n\t.globl hf_slots\n\t.hidden hf_slots\nhf_slots:"
	for (i = 0; i < n; i++) print "\t.quad .Lfirst" i
	print "\t.section .data.rel.ro, \"aw\"\n\t.balign 8\n\t.globl hf_hooks\n\t.hidden hf_hooks\nhf_hooks:"
	for (i = 0; i < n; i++) {
		if (kind[names[i]] != "") print "\t.hidden hf_" names[i]
		print "\t.quad " (kind[names[i]] == "" ? 0 : "hf_" names[i])
	}
	when["submit"] = when["look"] = when["wait"] = 1
	when["arena"] = 2
	when["at once"] = 3
	print "\t.section .rodata\n\t.globl hf_when\n\t.hidden hf_when\nhf_when:"
	for (i = 0; i < n; i++) print "\t.byte " when[at_once(names[i]) ? "at once" : kind[names[i]]] + 0
	print "\t.section .note.GNU-stack, \"\", @progbits"
}

# Calls that copy or set memory and take no stream. Some return before the device has done it.
function at_once(name) { return kind[name] == "submit" && name ~ /^cuMem(cpy|set)/ && stream[name] == "0" }

function list(count, prefix, empty, i, s) {
	for (i = 1; i <= count; i++) s = s (i > 1 ? ", " : "") prefix i
	return s
}

# An argument that the table gives no number of is 0.
function nth(which, i, at) {
	sub(/^k/, "", which)
	split(which, at, ",")
	return at[i] ~ /^[1-9]/ ? "a" at[i] : "0"
}

# A twin for per-thread default streams means that stream by 0.
function submits(i, name, s) {
	print "/* Made by stubs.awk. */\n#include \"library.h\"\n"
	for (i = 0; i < n; i++) {
		name = names[i]
		if (kind[name] == "look") passes(name, "hf_gate_enter", "hf_gate_leave")
		if (kind[name] == "wait") passes(name, "hf_gate_begin_wait", "hf_gate_end_wait")
		if (kind[name] != "submit") continue
		s = stream[name] ~ /^c/ ? "hf_stream_of(a" substr(stream[name], 2) ")" : nth(stream[name], 1)
		if (name ~ /_pt[ds][sz]$/) s = s == "0" ? "2" : s " == 0 ? 2 : " s
		print "CUresult hf_" name "(" list(args[name], "hf_word a") ");"
		print "CUresult hf_" name "(" list(args[name], "hf_word a") ") {"
		print "\tCUresult e;\n"
		print "\thf_" (pointers[name] ~ /^k/ ? "launch" : "submit") "(HF_" name ", " s ", " \
			nth(pointers[name], 1) ", " nth(pointers[name], 2) ");"
		print "\te = ((CUresult(*)(" list(args[name], "hf_word a") "))hf_real[HF_" name "])(" list(args[name], "a") ");"
		if (at_once(name)) print "\thf_memops(e, " s ");"
		print "\thf_gate_leave();\n\treturn e;\n}\n"
	}
}

# A call between two steps of the gate.
function passes(name, before, after, types) {
	types = args[name] == 0 ? "void" : list(args[name], "hf_word a")
	print "CUresult hf_" name "(" types ");\nCUresult hf_" name "(" types ") {\n\tCUresult e;\n"
	print "\t" before "(HF_" name ");"
	print "\te = ((CUresult(*)(" types "))hf_real[HF_" name "])(" list(args[name], "a") ");"
	print "\t" after "();\n\treturn e;\n}\n"
}
