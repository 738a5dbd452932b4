"""tools/speech-data with a synthesiser that stands in for espeak-ng and sounds a tone: the files
are those that `tutti data` reads, existing files are not changed, wrong input gives an error
message."""
import math, os, shutil, struct, subprocess, sys, tempfile, unittest

from command import NAMES, read, tutti

SCRIPT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../tools/speech-data")
WORDS = ["zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine"]
SYNTH = """#!/bin/sh
case "$1" in
    --version) echo "stand-in 1.0  Data at: nowhere"; exit 0;;
    --voices=variant)
        for v in m1 m2 m4 m5 m6 m8 f1 f2 f4 f5 Andy Annie Denis Gene Mario steph adam anika antonio belinda benjamin \
                 boris caleb david gustave Jacky linda max miguel pablo rob victor m3 m7 f3 Alicia edward
        do echo " 5 variant --/M Name !v/$v"; done; exit 0;;
esac
for word; do :; done
exec cat "$(dirname "$0")/$word.wav"
"""


def tone(path, frequency, rate=22050):
    body = b"".join(struct.pack("<h", int(12000 * math.sin(2 * math.pi * frequency * i / rate)))
                    for i in range(rate // 4))
    with open(path, "wb") as f:  # lengths as a pipe has them: unknown
        f.write(b"RIFF" + struct.pack("<I", 0x7fffffff) + b"WAVEfmt " + struct.pack(
            "<IHHIIHH", 16, 1, 1, rate, 2 * rate, 2, 16) + b"data" + struct.pack("<I", 0x7fffffff) + body)


@unittest.skipIf(subprocess.run([sys.executable, "-c", "import numpy"], stderr=subprocess.DEVNULL).returncode != 0,
                 "this Python has no numpy")
class Speech(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.mkdtemp(prefix="tutti-speech-")
        self.bin, self.out = os.path.join(self.folder, "bin"), os.path.join(self.folder, "speech")
        os.mkdir(self.bin)

    def tearDown(self):
        shutil.rmtree(self.folder)

    def synthesiser(self, text=SYNTH, rate=22050):
        with open(os.path.join(self.bin, "espeak-ng"), "w") as f:
            f.write(text)
        os.chmod(os.path.join(self.bin, "espeak-ng"), 0o755)
        for k, word in enumerate(WORDS):
            tone(os.path.join(self.bin, word + ".wav"), 300 + 250 * k, rate)

    def run_script(self, *words, path=None):
        return subprocess.run([sys.executable, SCRIPT, *words], capture_output=True, text=True,
                              env=dict(os.environ, PATH=(path or self.bin + ":/usr/bin:/bin"),
                                       OPENBLAS_NUM_THREADS="1"))

    def test_files_are_made_once_and_read(self):
        self.synthesiser()
        done = self.run_script(self.out, "--takes", "2", "--speakers", "2")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("train: 240 samples of 12 voices, 64 frames x 120 features", done.stdout)
        self.assertIn("t10k: 240 samples of 12 voices", done.stdout)
        images, labels = (read(os.path.join(self.out, name)) for name in NAMES[:2])
        self.assertEqual(struct.unpack(">4I", images[:16]), (0x803, 240, 64, 120))
        self.assertEqual([labels[8:].count(digit) for digit in range(10)], [24] * 10)
        body = images[16:]
        mean = sum(body) / len(body)
        self.assertLess(abs(mean - 128), 1)  # mean 0, deviation 1, 32 a deviation; less what is cut off beyond four
        self.assertLess(abs(math.sqrt(sum(b * b for b in body) / len(body) - mean ** 2) - 32), 2)
        checked = tutti("data", "verify", self.out)
        self.assertEqual(checked.returncode, 0, checked.stderr)
        before = os.stat(os.path.join(self.out, NAMES[0])).st_mtime_ns
        again = self.run_script(self.out, "--takes", "2", "--speakers", "2")
        self.assertIn("is there already", again.stdout)
        self.assertEqual(os.stat(os.path.join(self.out, NAMES[0])).st_mtime_ns, before)

    def test_invalid_input_gives_an_error_message(self):
        for text, rate, words, sentence in (
            (None, 22050, (), "there is no espeak-ng; apt-get install espeak-ng"),
            (SYNTH, 22050, ("--takes", "0"), "--takes 0: it must be from 1 to 1000"),
            (SYNTH, 22050, ("--speakers", "0"), "--speakers 0: it must be at least 1"),
            (SYNTH, 16000, (), "gives 1 channels of 16 bits at 16000 Hz; this recipe is for one of 16 at 22050"),
            ("#!/bin/sh\nexit 1\n", 22050, (), "has no voice Alicia, Andy, Annie, Denis"),
            (SYNTH.replace("exec cat", "echo no such voice >&2; exit 1 #"), 22050, (), "': no such voice")):
            if text is not None:
                self.synthesiser(text, rate)
            done = self.run_script(self.out, *words, path=None if text else self.bin)
            self.assertNotEqual(done.returncode, 0)
            self.assertIn(sentence, done.stderr)
            self.assertFalse(os.path.exists(os.path.join(self.out, NAMES[0])))


if __name__ == "__main__":
    unittest.main(verbosity=2)
