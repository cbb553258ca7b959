/* The cut protocol of docs/PROTOCOL.md for three ranks, checked by spin.
 *
 * Rank 0 is the coordinator, ranks 1 and 2 are its children. Each rank has a
 * main thread (Main) and an agent (Agent) whose steps are those of Machine in
 * package cut. The request comes at any moment of the program. Checked are: no
 * deadlock, hence a cut in every run; at the cut all ranks stand at a Point,
 * nobody is inside a collective, the collective numbers agree; and every
 * message that was sent has been received or is drained.
 *
 * All programs of Main are tried, or the one that the environment's PROGRAM names.
 * BROKEN takes a rule out, and the check must fail then: run.sh lists both.
 *
 * Left out: time (what patience waits for may end at any moment, which only
 * adds releases), elections (a named source stands for the elected one),
 * versions (channels keep their order), give-up.
 */
#ifndef ITERS
#define ITERS 2
#endif
#ifndef SPAN
#define SPAN 0 /* R0: a hint if the Points passed lie within */
#endif

mtype = { park, answer, hint, raise, ready, freeze, vote, thaw, cut, need, retract };
#define IDLE 0
#define ASKED 1
#define PARKING 2
#define FROZEN 3
#define CUT 4

byte program, broken; /* set once, at the start */
#define NO_R1 1
#define NO_R2 2
#define NO_VOTE 3
#define BLIND_VOTE 4
#define NO_DRAIN 5
#define LOSSY 6 /* raises may be lost: no rule taken out, but hangs are allowed */
#define LOSSY_NO_FINGERPRINT 7

#define PAIR(from, to) ((from) * 3 + (to))

/* Control messages, in order per pair of ranks. */
chan ctl[9] = [6] of { mtype, byte, byte };

/* The programs: messages sent, under way, in the mailbox, taken from the
 * network; collectives entered; Points passed. */
byte sent[9], flight[9], box[9], got[9];
byte colls[3], points[3];
bool atPoint[3], finished[3], inside[3]; /* inside: in a collective */
byte waits[3];                           /* 1 + the source that a receive is blocked on */

/* The machines. */
byte phase[3], target[3], top[3]; /* top: most collectives entered anywhere */
bool armed[3], says[3], said[3];  /* says: at rank 0, what the child reported */
bool needed[9];                   /* PAIR(a, b): b is blocked on a */
byte had[9];                      /* ... and has had so many messages of it */
byte told[3];                     /* 1 + the rank that holds a need of this one's */
byte heard, least, most, votes;
bool allYes, requested;

inline send_up_or_down(me, kind, a, b) { /* to the neighbours in the tree */
	if
	:: me == 0 -> ctl[PAIR(0, 1)]!kind(a, b); ctl[PAIR(0, 2)]!kind(a, b)
	:: else -> ctl[PAIR(me, 0)]!kind(a, b)
	fi
}

/* R0, R1 and R2 in one place. */
#define BEHIND(me) (broken != NO_R1 && top[me] > colls[me])
#define NEEDED(me, by) (broken != NO_R2 && needed[PAIR(me, by)] && sent[PAIR(me, by)] == had[PAIR(me, by)])
#define ANYNEED(me) (NEEDED(me, 0) || NEEDED(me, 1) || NEEDED(me, 2))
#define MUSTGO(me) (points[me] < target[me] || BEHIND(me) || ANYNEED(me))

inline evaluate(me) {
	if
	:: phase[me] == PARKING ->
		if
		:: atPoint[me] && !finished[me] && MUSTGO(me) -> atPoint[me] = false
		:: else
		fi;
		report(me)
	:: else
	fi
}

inline report(me) {
	if
	:: me == 0 && atPoint[0] && says[1] && says[2] -> open_round()
	:: me != 0 && said[me] != atPoint[me] ->
		said[me] = atPoint[me];
		ctl[PAIR(me, 0)]!ready(atPoint[me], 0)
	:: else
	fi
}

inline open_round() {
	if
	:: broken == NO_VOTE -> the_cut(0); send_up_or_down(0, cut, 0, 0)
	:: else ->
		votes = 1;
		allYes = atPoint[0] && !BEHIND(0) && (finished[0] || !ANYNEED(0));
		if
		:: allYes -> phase[0] = FROZEN
		:: else
		fi;
		send_up_or_down(0, freeze, 0, 0)
	fi
}

/* What nobody knew of this rank's collectives goes out. */
inline grow(me) {
	if
	:: (phase[me] == PARKING || phase[me] == FROZEN) && colls[me] > top[me] ->
		top[me] = colls[me];
		tell_raise(me, 3)
	:: else
	fi
}

inline tell_raise(me, from) {
	if
	:: me == 0 && from != 1 -> ctl[PAIR(0, 1)]!raise(top[me], 0)
	:: else
	fi;
	if
	:: me == 0 && from != 2 -> ctl[PAIR(0, 2)]!raise(top[me], 0)
	:: me != 0 && from != 0 -> ctl[PAIR(me, 0)]!raise(top[me], 0)
	:: else
	fi
}

inline take_back(me) {
	if
	:: told[me] > 0 -> ctl[PAIR(me, told[me] - 1)]!retract(0, 0); told[me] = 0
	:: else
	fi
}

/* The moment itself, on one rank. All the others have voted, so the whole
 * world must be still. */
inline the_cut(me) {
	assert(atPoint[0] && atPoint[1] && atPoint[2]);
	assert(!inside[0] && !inside[1] && !inside[2]);
	assert(colls[0] == colls[1] && colls[1] == colls[2]);
	phase[me] = CUT;
	armed[me] = false
}

/* ---- main threads ---- */

#define RING 1
#define BROADCASTS 2
#define SYNCHRONOUS 3
#define PIPELINE 4
#define UNEQUAL 5

inline say(me, to) {
	d_step { sent[PAIR(me, to)]++; flight[PAIR(me, to)]++ }
}

inline say_and_wait(me, to) { /* a synchronous send */
	say(me, to);
	got[PAIR(me, to)] == sent[PAIR(me, to)]
}

inline receive(me, from) {
	waits[me] = from + 1;
	atomic {
		(box[PAIR(from, me)] > 0 || flight[PAIR(from, me)] > 0);
		if
		:: box[PAIR(from, me)] > 0 -> box[PAIR(from, me)]--
		:: else -> flight[PAIR(from, me)]--; got[PAIR(from, me)]++
		fi;
		waits[me] = 0
	}
}

inline collective(me) {
	atomic { colls[me]++; inside[me] = true }
	atomic { colls[0] >= colls[me] && colls[1] >= colls[me] && colls[2] >= colls[me]; inside[me] = false }
}

inline broadcast(me, root) { /* its root does not wait for the others */
	atomic { colls[me]++; inside[me] = true }
	atomic { colls[root] >= colls[me]; inside[me] = false }
}

/* A parked main thread receives whatever comes, until it is let go or all are
 * at the cut and every pair's numbers agree. */
#define DRAINS(me) (atPoint[me] && (broken != NO_DRAIN || phase[me] == CUT))
inline stand(me) {
	do
	:: atomic { !atPoint[me] -> break }
	:: atomic { DRAINS(me) && flight[PAIR((me+1)%3, me)] > 0 -> drain(me, (me+1)%3) }
	:: atomic { DRAINS(me) && flight[PAIR((me+2)%3, me)] > 0 -> drain(me, (me+2)%3) }
	:: atomic { phase[0] == CUT && phase[1] == CUT && phase[2] == CUT &&
			got[PAIR((me+1)%3, me)] == sent[PAIR((me+1)%3, me)] &&
			got[PAIR((me+2)%3, me)] == sent[PAIR((me+2)%3, me)] -> goto settled }
	od
}

inline drain(me, from) {
	flight[PAIR(from, me)]--; got[PAIR(from, me)]++; box[PAIR(from, me)]++
}

inline point(me) {
	atomic {
		points[me]++;
		if
		:: armed[me] -> atPoint[me] = true; take_back(me); grow(me); evaluate(me)
		:: else
		fi
	}
	stand(me)
}

proctype Main(byte me) {
	byte i = 0;
	do
	:: i < ITERS -> i++;
		if
		:: program == RING ->
			say(me, (me+1)%3);
			receive(me, (me+2)%3);
			point(me)
		:: program == BROADCASTS -> /* the root runs ahead */
			point(me);
			broadcast(me, 1);
			if
			:: i == ITERS -> collective(me)
			:: else
			fi
		:: program == SYNCHRONOUS -> /* a ring of synchronous sends */
			if
			:: me == 0 -> say_and_wait(me, 1); receive(me, 2)
			:: else -> receive(me, (me+2)%3); say_and_wait(me, (me+1)%3)
			fi;
			point(me)
		:: program == PIPELINE -> /* with a Point before the send */
			if
			:: me > 0 -> receive(me, me-1)
			:: else
			fi;
			point(me);
			if
			:: me < 2 -> say(me, me+1)
			:: else
			fi;
			if
			:: i == ITERS -> collective(me)
			:: else
			fi
		:: program == UNEQUAL && me == 0 -> receive(me, 1); point(me)
		:: program == UNEQUAL && me == 1 -> point(me); point(me); say(me, 0)
		:: program == UNEQUAL && me == 2 -> break /* finishes at once */
		fi
	:: else -> break
	od;
	atomic {
		finished[me] = true;
		atPoint[me] = true;
		take_back(me);
		if
		:: phase[me] != IDLE -> grow(me); evaluate(me)
		:: else
		fi
	}
	stand(me);
settled:
	assert(flight[PAIR((me+1)%3, me)] == 0 && flight[PAIR((me+2)%3, me)] == 0)
}

/* ---- agents ---- */

inline begin(me) {
	phase[me] = ASKED;
	armed[me] = true
}

inline start_parking(me, to, maximum) {
	phase[me] = PARKING;
	target[me] = to;
	top[me] = maximum;
	grow(me);
	evaluate(me)
}

/* Points 255 stands for a finished rank, which has no say. */
inline count_answer(p, c) {
	heard++;
	if
	:: p < 255 && p < least -> least = p
	:: else
	fi;
	if
	:: p < 255 && p > most -> most = p
	:: else
	fi;
	if
	:: c > top[0] -> top[0] = c
	:: else
	fi
}

inline take_raise(me, from, n) {
	if
	:: phase[me] != CUT && n > top[me] -> top[me] = n; tell_raise(me, from); evaluate(me)
	:: else
	fi
}

inline let_go(me) { /* after a round has failed */
	phase[me] = PARKING;
	if
	:: atPoint[me] && !finished[me] && MUSTGO(me) -> atPoint[me] = false
	:: else
	fi
}

inline take_need(me, whose, n) {
	needed[PAIR(me, whose)] = true;
	had[PAIR(me, whose)] = n;
	evaluate(me)
}

/* At rank 0: what a child says. */
inline from_child(c) {
	if
	:: ctl[PAIR(c, 0)]?answer(a, b) ->
		count_answer(a, b);
		if
		:: heard == 3 ->
			a = 0;
			if
			:: least <= most && most - least <= SPAN -> a = most + 1
			:: else
			fi;
			b = top[0];
			ctl[PAIR(0, 1)]!hint(a, b); ctl[PAIR(0, 2)]!hint(a, b);
			start_parking(0, a, b)
		:: else
		fi
	:: ctl[PAIR(c, 0)]?raise(a, b) -> take_raise(0, c, a)
	:: ctl[PAIR(c, 0)]?ready(a, b) -> says[c] = a; evaluate(0)
	:: ctl[PAIR(c, 0)]?vote(a, b) ->
		votes++;
		allYes = allYes && a && (b == colls[0] || broken == LOSSY_NO_FINGERPRINT);
		if
		:: votes == 3 && allYes -> the_cut(0); send_up_or_down(0, cut, 0, 0)
		:: votes == 3 && !allYes ->
			says[1] = false; says[2] = false;
			send_up_or_down(0, thaw, 0, 0);
			let_go(0)
		:: else
		fi
	:: ctl[PAIR(c, 0)]?need(a, b) -> take_need(0, c, a)
	:: ctl[PAIR(c, 0)]?retract(a, b) -> needed[PAIR(0, c)] = false
	fi
}

/* At a child: what the parent or the sibling says. */
inline to_child(me, from) {
	if
	:: ctl[PAIR(from, me)]?park(a, b) ->
		begin(me);
		a = points[me];
		if
		:: finished[me] -> a = 255
		:: else
		fi;
		ctl[PAIR(me, 0)]!answer(a, colls[me])
	:: ctl[PAIR(from, me)]?hint(a, b) -> start_parking(me, a, b)
	:: ctl[PAIR(from, me)]?raise(a, b) ->
		if
		:: broken == LOSSY || broken == LOSSY_NO_FINGERPRINT
		:: true -> take_raise(me, 0, a)
		fi
	:: ctl[PAIR(from, me)]?freeze(a, b) ->
		a = broken == BLIND_VOTE || (atPoint[me] && !BEHIND(me) && (finished[me] || !ANYNEED(me)));
		if
		:: a -> phase[me] = FROZEN
		:: else -> phase[me] = PARKING
		fi;
		ctl[PAIR(me, 0)]!vote(a, colls[me])
	:: ctl[PAIR(from, me)]?thaw(a, b) ->
		let_go(me);
		said[me] = atPoint[me];
		ctl[PAIR(me, 0)]!ready(atPoint[me], 0)
	:: ctl[PAIR(from, me)]?cut(a, b) -> the_cut(me)
	:: ctl[PAIR(from, me)]?need(a, b) -> take_need(me, from, a)
	:: ctl[PAIR(from, me)]?retract(a, b) -> needed[PAIR(me, from)] = false
	fi
}

/* The look at a main thread under way. */
inline look(me) {
	grow(me);
	if
	:: waits[me] > 0 && told[me] != waits[me] && flight[PAIR(waits[me]-1, me)] == 0 && box[PAIR(waits[me]-1, me)] == 0 ->
		take_back(me);
		told[me] = waits[me];
		ctl[PAIR(me, waits[me]-1)]!need(got[PAIR(waits[me]-1, me)], 0)
	:: waits[me] == 0 -> take_back(me)
	:: else
	fi
}

#define SEEN(me) (colls[me] > top[me] || (waits[me] == 0 && told[me] > 0) || (waits[me] > 0 && told[me] != waits[me] \
	&& flight[PAIR(waits[me]-1, me)] == 0 && box[PAIR(waits[me]-1, me)] == 0))

proctype Agent(byte me) {
	byte a, b;
	do
	:: atomic { me == 0 && !requested -> requested = true;
		begin(0);
		send_up_or_down(0, park, 0, 0);
		least = 255; most = 0; top[0] = 0;
		a = points[0];
		if
		:: finished[0] -> a = 255
		:: else
		fi;
		count_answer(a, colls[0]) }
	:: atomic { me == 0 && nempty(ctl[PAIR(1, 0)]) -> from_child(1) }
	:: atomic { me == 0 && nempty(ctl[PAIR(2, 0)]) -> from_child(2) }
	:: atomic { me != 0 && nempty(ctl[PAIR(0, me)]) -> to_child(me, 0) }
	:: atomic { me != 0 && nempty(ctl[PAIR(3-me, me)]) -> to_child(me, 3-me) }
	:: atomic { phase[me] == PARKING && !atPoint[me] && SEEN(me) -> look(me) }
	:: atomic { phase[me] == CUT -> break }
	od
}

c_decl { \#include <stdlib.h> };

init {
	atomic {
		c_code {
			now.program = getenv("PROGRAM") ? atoi(getenv("PROGRAM")) : 0;
			now.broken = getenv("BROKEN") ? atoi(getenv("BROKEN")) : 0;
		};
		if
		:: program == 0 -> select(program : RING .. UNEQUAL)
		:: else
		fi;
		run Main(0); run Main(1); run Main(2);
		run Agent(0); run Agent(1); run Agent(2)
	}
}
