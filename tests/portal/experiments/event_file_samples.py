"""Event files that tensorboardX 2.6 and tensorboard 2.21 have written, packed by zlib."""

import base64
import zlib

_V2 = (
    "eNrzYICAf5M85nJefJCadfHQLUcp3qSixMw8Pdey1LwSK6MgPS6dktS84vyipPzEohS94tLc3MSiSr3yosyS1CK9VJ"
    "Cq+LTMnNR4iEhxzH1BHai5X9adceUEsxz6HbQUueS5WHLyi4uduDgYhRi0WIDi9l7cXJxc7MXJiTmJRcV9m/sb9aB6"
    "j54O/wXR69HvIMCITXeDHYpusTA+G0zdAUDdTJi6V6/SQtXtZVf0OgMWHnOqrkB0VwB1s2tFc0VysZenZqZnlBQ72X"
    "EwCXEIMQFJJg5mJQOIjg/7GVAAhwMq/4M9hBZx8OLj4uHiysgsLslPL0rMLc5a7r6+Aqpq0VLFoxB7E4D2smhlc2Vy"
    "sRUn5hbkpDoFc7ALsYCsdGI0BCHnzgA/d14uKS6gal5PD5cgIM0Iwhwg/VZ1s0OBFJeni2NIxZxkkMeaGBrLzxZtA8"
    "l6uvq5rHNKaPLi4uLgYsvMTUxPLZ7549VHAHzwekg="
)
_CLASSIC = (
    "eNqTYICAxfXeSpxuDxmyLh665SjFm1SUmJmn51qWmldiZWRZPsFNDqru5h0hI04wy6HfQUuYS5CLKye/uFi/BKRBlI"
    "GhwX5igkCXOFT183M/5BCqebi4uJgTk5NFQQL2K2dfUYAq03y7MgCizKPfQYARi7EM9nuknB0koeq7P3JoIKuHG3z2"
    "zBlbnofNEzANDgAqZMIwePWqVXYaDHUimAZD1CMZ7GN3pT/YDdPgCKBCZmwBYRd109kQ02CIerjBs2bOtGtctdoB0+"
    "AEoEIWDINBDok/XN6OaTBEPXJQ2IV7XV+GqTADqJAVOTIO1Ff6yO34A1V4qpp/LSLOPjByvWXkYi9PzUzPKCnWesgI"
    "kWL4sF8QyrCH2hDpoAimG5hsNU9GfFxxh8HRwSgCphroTyB4ud8YDB7vnwHm34TSJ/dDLWdYAOHbz4HI25tA1NtD9d"
    "vDLLWKYEABKg7UomtCp//5BzX19rwpCyAengAMNC7CocHggBYaDJ4Omo+a+e1+JEQihUYaGDyDhsrN/RBf74SFBtSX"
    "D+xnQH0NUffRHqLvm70ROFR+28MspV1opIj2CuRDTc0xbLyHnIiTuBK4WFMy0zNLlMI5mASYJJiV/DsD/Nx5uaS4gI"
    "p4PT1cgoA0EwhzgMi/V2YVAykxTxfHkIo5yTkZGQlAkAQiEhgYhLQYW84z9K0Dh5qrn8s6p4QmFdmwQluo9QmeH98g"
    "53oDLj0uwbz8klT9ktSKkvji0tzcxKJKJ34OdiEWISYORifWjNScnHwvDi42LhaQkjuxVpsB3iYiSA=="
)

# Scalars loss/train and acc, whose sixth value is NaN; weights at steps 0 and 10; the image digit.
CLASSIC = zlib.decompress(base64.b64decode(_CLASSIC))
# The same kinds as tensors: loss, weights at step 7, sample at step 4.
V2 = zlib.decompress(base64.b64decode(_V2))
