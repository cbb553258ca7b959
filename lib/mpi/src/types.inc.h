/* types.inc.h - datatypes as text, and made again of it, under this MPI or another: of a request that a checkpoint
 * keeps. A type is a word, numbers, and the types that it is made of: hvector(12,2,40;bytes(8;)). Basic types have
 * their number of bytes: two MPIs exchange bytes. */

enum { DEEPEST = 64, MOST_NUMBERS = 1 << 20 };

/* The numbers of a subarray or a distributed array that differ between MPIs; as text 0, 1, ... */
static const int orders[] = { MPI_ORDER_C, MPI_ORDER_FORTRAN };
static const int distributions[] = { MPI_DISTRIBUTE_BLOCK, MPI_DISTRIBUTE_CYCLIC, MPI_DISTRIBUTE_NONE };

static int index_in(const int *list, int n, int value) {
	int i = 0;
	while (i < n && list[i] != value) {
		i++;
	}
	return i;
}

static void add_word(struct hfm_text *t, const char *word) { hfm_add(t, word, strlen(word)); }

static void add_number(struct hfm_text *t, long long n) {
	char text[32];
	snprintf(text, sizeof text, "%lld,", n);
	add_word(t, text);
}

static void add_ints(struct hfm_text *t, const int *list, int n) {
	for (int i = 0; i < n; i++) {
		add_number(t, list[i]);
	}
}

static void add_addresses(struct hfm_text *t, const MPI_Aint *list, int n, MPI_Aint times) {
	for (int i = 0; i < n; i++) {
		add_number(t, (long long)(list[i] * times));
	}
}

/* add_bytes writes a basic type. Those of a value and an int may have a gap between the two, and one behind. */
static bool add_bytes(struct hfm_text *t, MPI_Datatype type) {
	int size = 0;
	MPI_Aint lb = 0, extent = 0;
	char text[120];
	if (REAL(Type_size)(type, &size) != MPI_SUCCESS || REAL(Type_get_extent)(type, &lb, &extent) != MPI_SUCCESS ||
		lb != 0 || size < 0) {
		return false;
	}
	if (size == extent) {
		snprintf(text, sizeof text, "bytes(%d,;)", size);
	} else {
		const int whole = (int)sizeof(int), value = size - whole, at = (value + whole - 1) / whole * whole;
		if (value <= 0 || at + whole > extent) {
			return false;
		}
		snprintf(text, sizeof text, "resized(0,%lld,;hindexed(2,%d,%d,0,%d,;bytes(1,;)))", (long long)extent, value,
			whole, at);
	}
	add_word(t, text);
	return true;
}

static bool add_type(struct hfm_text *t, MPI_Datatype type, int depth);

/* A derived type as it was made. */
struct contents {
	int combiner, ints_n, addresses_n, types_n;
	int *ints;
	MPI_Aint *addresses;
	MPI_Datatype *types;
};

static bool add_contents(struct hfm_text *t, const struct contents *c, MPI_Datatype type, int depth) {
	const int *v = c->ints, n = c->ints_n > 0 ? v[0] : 0;
	MPI_Aint lb = 0, extent = 1;
	if (c->types_n > 0 && c->combiner != MPI_COMBINER_STRUCT &&
		REAL(Type_get_extent)(c->types[0], &lb, &extent) != MPI_SUCCESS) {
		return false;
	}
	switch (c->combiner) {
	case MPI_COMBINER_DUP:
		return add_type(t, c->types[0], depth);
	case MPI_COMBINER_CONTIGUOUS:
		add_word(t, "contiguous(");
		add_ints(t, v, 1);
		break;
	case MPI_COMBINER_VECTOR:
		add_word(t, "hvector(");
		add_ints(t, v, 2);
		add_number(t, (long long)v[2] * extent);
		break;
	case MPI_COMBINER_HVECTOR:
		add_word(t, "hvector(");
		add_ints(t, v, 2);
		add_addresses(t, c->addresses, 1, 1);
		break;
	case MPI_COMBINER_INDEXED:
		add_word(t, "hindexed(");
		add_ints(t, v, 1 + n);
		for (int i = 0; i < n; i++) {
			add_number(t, (long long)v[1 + n + i] * extent);
		}
		break;
	case MPI_COMBINER_HINDEXED:
		add_word(t, "hindexed(");
		add_ints(t, v, 1 + n);
		add_addresses(t, c->addresses, n, 1);
		break;
	case MPI_COMBINER_INDEXED_BLOCK:
		add_word(t, "hblocks(");
		add_ints(t, v, 2);
		for (int i = 0; i < n; i++) {
			add_number(t, (long long)v[2 + i] * extent);
		}
		break;
	case MPI_COMBINER_HINDEXED_BLOCK:
		add_word(t, "hblocks(");
		add_ints(t, v, 2);
		add_addresses(t, c->addresses, n, 1);
		break;
	case MPI_COMBINER_STRUCT: /* how it is padded follows from the types that it has, which are bytes later */
		if (REAL(Type_get_extent)(type, &lb, &extent) != MPI_SUCCESS) {
			return false;
		}
		add_word(t, "resized(");
		add_number(t, lb);
		add_number(t, extent);
		add_word(t, ";struct(");
		add_ints(t, v, 1 + n);
		add_addresses(t, c->addresses, n, 1);
		break;
	case MPI_COMBINER_RESIZED:
		add_word(t, "resized(");
		add_addresses(t, c->addresses, 2, 1);
		break;
	case MPI_COMBINER_SUBARRAY:
		add_word(t, "subarray(");
		add_ints(t, v, 1 + 3 * n);
		add_number(t, index_in(orders, 2, v[1 + 3 * n]));
		break;
	case MPI_COMBINER_DARRAY: /* size, rank, dimensions, lengths, distributions, their arguments, processes, order */
		add_word(t, "darray(");
		add_ints(t, v, 3 + v[2]);
		for (int i = 0; i < v[2]; i++) {
			add_number(t, index_in(distributions, 3, v[3 + v[2] + i]));
		}
		for (int i = 0; i < v[2]; i++) {
			const int arg = v[3 + 2 * v[2] + i];
			add_number(t, arg == MPI_DISTRIBUTE_DFLT_DARG ? -1 : arg);
		}
		add_ints(t, v + 3 + 3 * v[2], v[2]);
		add_number(t, index_in(orders, 2, v[3 + 4 * v[2]]));
		break;
	default:
		return false;
	}
	add_word(t, ";");
	for (int i = 0; i < c->types_n; i++) {
		if (!add_type(t, c->types[i], depth)) {
			return false;
		}
	}
	add_word(t, c->combiner == MPI_COMBINER_STRUCT ? "))" : ")");
	return true;
}

/* is_basic reports whether a type is one that MPI has, or has made of a number of digits. */
static bool is_basic(int combiner) {
	return combiner == MPI_COMBINER_NAMED || combiner == MPI_COMBINER_F90_REAL ||
		combiner == MPI_COMBINER_F90_COMPLEX || combiner == MPI_COMBINER_F90_INTEGER;
}

/* add_type writes a type. It is false for one that cannot be made again. */
static bool add_type(struct hfm_text *t, MPI_Datatype type, int depth) {
	struct contents c = { 0 };
	MPI_Count ints, addresses, large = 0, types;
	if (depth == DEEPEST) {
		return false;
	}
	/* The older function is an error for a type that was made with large counts. */
	if (hfm_real[HFM_Type_get_envelope_c] != NULL &&
		(REAL(Type_get_envelope_c)(type, &ints, &addresses, &large, &types, &c.combiner) != MPI_SUCCESS || large > 0)) {
		return false;
	}
	if (REAL(Type_get_envelope)(type, &c.ints_n, &c.addresses_n, &c.types_n, &c.combiner) != MPI_SUCCESS) {
		return false;
	}
	if (is_basic(c.combiner)) {
		return add_bytes(t, type);
	}
	c.ints = hfm_need(calloc((size_t)c.ints_n + 1, sizeof *c.ints));
	c.addresses = hfm_need(calloc((size_t)c.addresses_n + 1, sizeof *c.addresses));
	c.types = hfm_need(calloc((size_t)c.types_n + 1, sizeof(MPI_Datatype)));
	bool ok =
		REAL(Type_get_contents)(type, c.ints_n, c.addresses_n, c.types_n, c.ints, c.addresses, c.types) == MPI_SUCCESS;
	bool written = ok && add_contents(t, &c, type, depth + 1);
	for (int i = 0; ok && i < c.types_n; i++) {
		int a, b, d, combiner = MPI_COMBINER_NAMED;
		if (REAL(Type_get_envelope)(c.types[i], &a, &b, &d, &combiner) == MPI_SUCCESS && !is_basic(combiner)) {
			REAL(Type_free)(&c.types[i]);
		}
	}
	free(c.ints);
	free(c.addresses);
	free(c.types);
	return written;
}

/* The numbers of a type that is read. */
struct numbers {
	long long *list;
	int n;
};

static bool take_numbers(const char **at, struct numbers *v) {
	int room = 0;
	while (**at == '-' || (**at >= '0' && **at <= '9')) {
		char *end;
		if (v->n == room) {
			room = 2 * room + 16;
			v->list = hfm_need(realloc(v->list, (size_t)room * sizeof *v->list));
		}
		v->list[v->n++] = strtoll(*at, &end, 10);
		if (*end != ',' || v->n > MOST_NUMBERS * 64) {
			return false;
		}
		*at = end + 1;
	}
	return *(*at)++ == ';';
}

static int *as_ints(const struct numbers *v, int from, int n) {
	int *list = hfm_need(malloc(((size_t)n + 1) * sizeof *list));
	for (int i = 0; i < n; i++) {
		list[i] = (int)v->list[from + i];
	}
	return list;
}

static MPI_Aint *as_addresses(const struct numbers *v, int from, int n) {
	MPI_Aint *list = hfm_need(malloc(((size_t)n + 1) * sizeof *list));
	for (int i = 0; i < n; i++) {
		list[i] = (MPI_Aint)v->list[from + i];
	}
	return list;
}

/* make_blocks makes a type of blocks with displacements, of one length or of a length each, of one type or of a type
 * each. */
static int make_blocks(const char *word, const struct numbers *v, const MPI_Datatype *types, MPI_Datatype *out) {
	const bool blocks = strcmp(word, "hblocks") == 0;
	const int n = (int)v->list[0], lengths = blocks ? 1 : n;
	int *length = as_ints(v, 1, lengths), rc;
	MPI_Aint *where = as_addresses(v, 1 + lengths, n);
	if (blocks) {
		rc = REAL(Type_create_hindexed_block)(n, length[0], where, types[0], out);
	} else if (strcmp(word, "struct") == 0) {
		rc = REAL(Type_create_struct)(n, length, where, types, out);
	} else {
		rc = REAL(Type_create_hindexed)(n, length, where, types[0], out);
	}
	free(length);
	free(where);
	return rc;
}

static int make_subarray(const struct numbers *v, MPI_Datatype type, MPI_Datatype *out) {
	const int n = (int)v->list[0];
	int *list = as_ints(v, 1, 3 * n);
	int rc = REAL(Type_create_subarray)(n, list, list + n, list + 2 * n, orders[v->list[1 + 3 * n] & 1], type, out);
	free(list);
	return rc;
}

static int make_darray(const struct numbers *v, MPI_Datatype type, MPI_Datatype *out) {
	const int n = (int)v->list[2];
	int *list = as_ints(v, 3, 4 * n);
	for (int i = 0; i < n; i++) {
		int *how = &list[n + i], *arg = &list[2 * n + i];
		*how = distributions[*how >= 0 && *how < 3 ? *how : 0];
		*arg = *arg == -1 ? MPI_DISTRIBUTE_DFLT_DARG : *arg;
	}
	int rc = REAL(Type_create_darray)((int)v->list[0], (int)v->list[1], n, list, list + n, list + 2 * n, list + 3 * n,
		orders[v->list[3 + 4 * n] & 1], type, out);
	free(list);
	return rc;
}

/* has_numbers reports whether a type of such a word has as many numbers, and as many types, as belong to it. */
static bool has_numbers(const char *word, const struct numbers *v, int types) {
	const long long n = v->n > 0 ? v->list[0] : -1, m = v->n > 2 ? v->list[2] : -1;
	const bool all = strcmp(word, "struct") == 0;
	if (n < 0 || n > MOST_NUMBERS * 16 || types != (all ? n : strcmp(word, "bytes") != 0)) {
		return (strcmp(word, "resized") == 0) && v->n == 2 && types == 1;
	}
	if (strcmp(word, "bytes") == 0 || strcmp(word, "contiguous") == 0) {
		return v->n == 1;
	}
	if (strcmp(word, "darray") == 0) {
		return m >= 0 && m < MOST_NUMBERS && v->n == 4 + 4 * m;
	}
	return v->n ==
		(strcmp(word, "hvector") == 0           ? 3
				: strcmp(word, "hblocks") == 0  ? 2 + n
				: strcmp(word, "resized") == 0  ? 2
				: strcmp(word, "subarray") == 0 ? 2 + 3 * n
												: 1 + 2 * n);
}

static int make_of(const char *word, const struct numbers *v, const MPI_Datatype *types, MPI_Datatype *out) {
	if (strcmp(word, "bytes") == 0) {
		return REAL(Type_contiguous)((int)v->list[0], MPI_BYTE, out);
	}
	if (strcmp(word, "contiguous") == 0) {
		return REAL(Type_contiguous)((int)v->list[0], types[0], out);
	}
	if (strcmp(word, "hvector") == 0) {
		return REAL(Type_create_hvector)((int)v->list[0], (int)v->list[1], (MPI_Aint)v->list[2], types[0], out);
	}
	if (strcmp(word, "resized") == 0) {
		return REAL(Type_create_resized)(types[0], (MPI_Aint)v->list[0], (MPI_Aint)v->list[1], out);
	}
	if (strcmp(word, "subarray") == 0) {
		return make_subarray(v, types[0], out);
	}
	if (strcmp(word, "darray") == 0) {
		return make_darray(v, types[0], out);
	}
	return make_blocks(word, v, types, out);
}

/* take_type reads a type and makes it. It is false, and nothing is left, where the text is none or MPI refuses it. */
static bool take_type(const char **at, MPI_Datatype *out, int depth) {
	static const char *const words[] = { "bytes", "contiguous", "hvector", "hindexed", "hblocks", "struct", "resized",
		"subarray", "darray" };
	const size_t n = strcspn(*at, "(");
	const char *word = NULL;
	struct numbers v = { 0 };
	MPI_Datatype *types = NULL;
	int types_n = 0;
	for (size_t i = 0; i < sizeof words / sizeof *words; i++) {
		word = strlen(words[i]) == n && strncmp(words[i], *at, n) == 0 ? words[i] : word;
	}
	if (word == NULL || (*at)[n] != '(' || depth == DEEPEST) {
		return false;
	}
	*at += n + 1;
	bool ok = take_numbers(at, &v);
	while (ok && **at != ')' && **at != 0) {
		types = hfm_need(realloc(types, ((size_t)types_n + 1) * sizeof(MPI_Datatype)));
		ok = take_type(at, &types[types_n], depth + 1);
		types_n += ok;
	}
	ok = ok && *(*at)++ == ')' && has_numbers(word, &v, types_n) && make_of(word, &v, types, out) == MPI_SUCCESS;
	for (int i = 0; i < types_n; i++) {
		REAL(Type_free)(&types[i]);
	}
	free(types);
	free(v.list);
	return ok;
}

/* make_type makes a type of its text, ready for use. */
static bool make_type(const char *text, MPI_Datatype *out) {
	if (!take_type(&text, out, 0)) {
		return false;
	}
	if (*text != 0 || REAL(Type_commit)(out) != MPI_SUCCESS) {
		REAL(Type_free)(out);
		return false;
	}
	return true;
}
