package planets

// J2000 is the epoch of the elements as Julian date (TT).
const J2000 = 2451545.0

// centuryDays is the length of a Julian century.
const centuryDays = 36525

// Elements are the Keplerian elements of a heliocentric orbit.
type Elements struct {
	SemiMajor     float64 // a, au
	Eccentricity  float64 // e
	Inclination   float64 // I, degrees
	MeanLongitude float64 // L, degrees
	Perihelion    float64 // longitude of the perihelion ϖ, degrees
	Node          float64 // longitude of the ascending node Ω, degrees
}

// A Planet is one row of the table.
type Planet struct {
	Name string
	// SunRatio is the mass of the Sun divided by that of the planet with its
	// moons.
	SunRatio float64
	Epoch    Elements // at J2000
	Rate     Elements // change per Julian century
}

// Planets is the table, from the Sun outwards. The Earth and the Moon are one
// body, at their centre of mass.
var Planets = []Planet{
	{"Mercury", 6023600,
		Elements{0.38709927, 0.20563593, 7.00497902, 252.25032350, 77.45779628, 48.33076593},
		Elements{0.00000037, 0.00001906, -0.00594749, 149472.67411175, 0.16047689, -0.12534081}},
	{"Venus", 408523.71,
		Elements{0.72333566, 0.00677672, 3.39467605, 181.97909950, 131.60246718, 76.67984255},
		Elements{0.00000390, -0.00004107, -0.00078890, 58517.81538729, 0.00268329, -0.27769418}},
	{"Earth+Moon", 328900.5614,
		Elements{1.00000261, 0.01671123, -0.00001531, 100.46457166, 102.93768193, 0.0},
		Elements{0.00000562, -0.00004392, -0.01294668, 35999.37244981, 0.32327364, 0.0}},
	{"Mars", 3098708,
		Elements{1.52371034, 0.09339410, 1.84969142, -4.55343205, -23.94362959, 49.55953891},
		Elements{0.00001847, 0.00007882, -0.00813131, 19140.30268499, 0.44441088, -0.29257343}},
	{"Jupiter", 1047.3486,
		Elements{5.20288700, 0.04838624, 1.30439695, 34.39644051, 14.72847983, 100.47390909},
		Elements{-0.00011607, -0.00013253, -0.00183714, 3034.74612775, 0.21252668, 0.20469106}},
	{"Saturn", 3497.898,
		Elements{9.53667594, 0.05386179, 2.48599187, 49.95424423, 92.59887831, 113.66242448},
		Elements{-0.00125060, -0.00050991, 0.00193609, 1222.49362201, -0.41897216, -0.28867794}},
	{"Uranus", 22902.98,
		Elements{19.18916464, 0.04725744, 0.77263783, 313.23810451, 170.95427630, 74.01692503},
		Elements{-0.00196176, -0.00004397, -0.00242939, 428.48202785, 0.40805281, 0.04240589}},
	{"Neptune", 19412.24,
		Elements{30.06992276, 0.00859048, 1.77004347, -55.12002969, 44.96476227, 131.78422574},
		Elements{0.00026291, 0.00005105, 0.00035372, 218.45945325, -0.32241464, -0.00508664}},
}

// At returns the elements at a Julian date.
func (p Planet) At(julianDate float64) Elements {
	t := (julianDate - J2000) / centuryDays
	return Elements{
		p.Epoch.SemiMajor + t*p.Rate.SemiMajor,
		p.Epoch.Eccentricity + t*p.Rate.Eccentricity,
		p.Epoch.Inclination + t*p.Rate.Inclination,
		p.Epoch.MeanLongitude + t*p.Rate.MeanLongitude,
		p.Epoch.Perihelion + t*p.Rate.Perihelion,
		p.Epoch.Node + t*p.Rate.Node,
	}
}
